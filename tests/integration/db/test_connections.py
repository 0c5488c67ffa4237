"""Pool connections to a Postgres that is frozen, moved, demoted, or behind a pooler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.db.backends.postgresql import base
from psycopg import sql
from psycopg_pool import ConnectionPool

from jobs.db.transactions import releasing_connection, with_timeouts
from scheduler_project.db_backend.base import DatabaseWrapper
from scheduler_project.settings.database import build_database_settings, parse_database_url
from tests.support.own_connection import own_connection
from tests.support.postgres_proxy import PostgresProxy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

STATEMENT_SECONDS = 1.0
# Its statement timeout, the grace after it, and as much again for a busy machine.
SOON_SECONDS = 10.0
POOL_SIZE = 6


@contextmanager
def connected_to(url: str, statement_seconds: float = STATEMENT_SECONDS) -> Iterator[ConnectionPool[Any]]:
    """Connect this thread to a DATABASE_URL with a separate pool."""
    connection.close()
    settings = build_database_settings(url, pool_size=POOL_SIZE, statement_seconds=statement_seconds)
    wrapper = DatabaseWrapper(connection.settings_dict | settings, alias="default")
    former, connections["default"] = connections["default"], wrapper
    pools = vars(base.DatabaseWrapper)["_connection_pools"]
    former_pool = pools.pop("default", None)
    try:
        yield wrapper.pool
    finally:
        wrapper.close()
        wrapper.close_pool()
        if former_pool is not None:
            pools["default"] = former_pool
        connections["default"] = former


def query(question: str) -> Any:
    with releasing_connection(), connection.cursor() as cursor:
        cursor.execute(question)
        (answer,) = cursor.fetchone()
        return answer


def is_writable() -> bool:
    try:
        query("SELECT setval('connections_test', 1)")
    except OperationalError:
        return False
    return True


@pytest.fixture
def sequence() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE IF NOT EXISTS connections_test")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP SEQUENCE connections_test")


@contextmanager
def database_default(name: str, value: str) -> Iterator[None]:
    """Change a default for new connections."""

    def alter(command: Literal["SET {} = {}", "RESET {}"]) -> None:
        with own_connection("postgres", autocommit=True) as other:
            database = sql.Identifier(connection.settings_dict["NAME"])
            words = sql.SQL(command).format(*(sql.Identifier(name), sql.Literal(value))[: command.count("{")])
            other.execute(sql.SQL("ALTER DATABASE {} ").format(database) + words)

    alter("SET {} = {}")
    try:
        yield
    finally:
        alter("RESET {}")


def fill(pool: ConnectionPool[Any]) -> None:
    """Open all connections of the pool and leave them idle."""
    pool.open()
    connections = [pool.getconn() for _ in range(POOL_SIZE)]
    for each in connections:
        pool.putconn(each)


def test_one_error_abandons_all_connections_to_a_demoted_server(sequence: None) -> None:
    with PostgresProxy() as proxy, connected_to(proxy.url) as pool:
        with database_default("default_transaction_read_only", "on"):
            fill(pool)
        # The name now leads to another server, while pooled connections lead to the old one.
        assert [is_writable() for _ in range(POOL_SIZE * 2)].count(False) == 1


def test_error_names_the_demoted_server_as_read_only(sequence: None) -> None:
    expected_error = pytest.raises(OperationalError, match=r"is read-only at the moment.*read-only")
    read_only = database_default("default_transaction_read_only", "on")
    with PostgresProxy() as proxy, read_only, connected_to(proxy.url), expected_error:
        query("SELECT setval('connections_test', 1)")


def test_frozen_server_is_abandoned_within_seconds(sequence: None) -> None:
    with PostgresProxy() as proxy, connected_to(proxy.url) as pool:
        fill(pool)
        proxy.freeze()
        started = time.monotonic()
        with pytest.raises(OperationalError, match="did not answer within"):
            query("SELECT 1")
        assert time.monotonic() - started < SOON_SECONDS
        proxy.lead_on()
        wait_for(is_writable, "it resumes on the other server", seconds=SOON_SECONDS)


def stay_in_a_frozen_transaction(proxy: PostgresProxy) -> None:
    with transaction.atomic(), with_timeouts(statement_seconds=STATEMENT_SECONDS), connection.cursor() as cursor:
        proxy.freeze()
        cursor.execute("SELECT 1")


def test_transaction_timeout_applies_to_a_frozen_server() -> None:
    with PostgresProxy() as proxy, connected_to(proxy.url, statement_seconds=3600.0):
        assert query("SELECT 1") == 1
        started = time.monotonic()
        with pytest.raises(OperationalError):
            stay_in_a_frozen_transaction(proxy)
        assert time.monotonic() - started < SOON_SECONDS


def test_every_statement_has_a_timeout() -> None:
    with PostgresProxy() as proxy, connected_to(proxy.url):
        with pytest.raises(OperationalError, match="statement timeout"):
            query("SELECT pg_sleep(60)")
        assert query("SHOW statement_timeout") == "1s"
        assert query("SHOW idle_in_transaction_session_timeout") == "3s"


def test_migration_has_no_timeout() -> None:
    with PostgresProxy() as proxy, connected_to(proxy.url):
        for atomic in (True, False):
            with connection.schema_editor(atomic=atomic) as editor:
                editor.execute(f"SELECT pg_sleep({STATEMENT_SECONDS + 0.5})")
            assert query("SHOW statement_timeout") == "1s"


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_isolation_is_read_committed_whatever_the_server_default(level: str) -> None:
    with PostgresProxy() as proxy, database_default("default_transaction_isolation", level), connected_to(proxy.url):
        assert query("SHOW transaction_isolation") == "read committed"
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("read committed",)


def test_pooler_that_refuses_session_settings_is_supported(caplog: pytest.LogCaptureFixture) -> None:
    level = database_default("default_transaction_isolation", "serializable")
    with PostgresProxy(refuses_options=True) as proxy, level, connected_to(proxy.url):
        assert query("SHOW statement_timeout") == "0"
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("read committed",)
        connection.close()
        with pytest.raises(OperationalError, match="did not answer within"):
            query("SELECT pg_sleep(60)")
    with own_connection() as other:  # not ended by others before its minute has passed
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(60)%'")
    assert "docs/operations.md" in caplog.text


def test_writable_server_is_chosen_among_several(sequence: None) -> None:
    with PostgresProxy() as first, PostgresProxy() as second:
        first.go_away()
        ports = [parse_database_url(proxy.url)["PORT"] for proxy in (first, second)]
        url = second.url.replace(f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}")
        with connected_to(url):
            assert is_writable()
        read_only = database_default("default_transaction_read_only", "on")
        with read_only, connected_to(url), pytest.raises(OperationalError, match="read-only"):
            query("SELECT 1")


def test_pool_timeout_names_the_cause() -> None:
    with PostgresProxy() as proxy:
        url = proxy.url
    with connected_to(url), pytest.raises(OperationalError, match="refused"):
        query("SELECT 1")


def test_connection_has_a_maximum_lifetime() -> None:
    with PostgresProxy() as proxy, connected_to(proxy.url) as pool:
        assert 0 < pool.max_idle <= pool.max_lifetime <= 600
