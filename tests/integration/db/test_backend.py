"""The database backend: the pool checks connections without a query, and times are parsed quickly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.backends.postgresql import base

from jobs.db.transactions import releasing_connection
from scheduler_project.db_backend.base import DatabaseWrapper, TimestampLoader, has_pending_input
from tests.support.own_connection import own_connection

pytestmark = pytest.mark.django_db(transaction=True)


def query(question: str) -> object:
    with releasing_connection(), connection.cursor() as cursor:
        cursor.execute(question)
        (answer,) = cursor.fetchone()
        return answer


def end_all_connections() -> int:
    """Terminate all backends, as a server restart does."""
    with own_connection() as other:
        rows = other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(rows)


def test_pool_never_returns_connections_that_the_server_closed() -> None:
    assert query("SELECT 1") == 1
    for _ in range(3):
        assert end_all_connections() >= 1
        assert query("SELECT 1") == 1


def test_dead_connection_has_readable_data_and_live_one_has_not() -> None:
    with releasing_connection():
        connection.ensure_connection()
        raw = connection.connection
        assert not has_pending_input(raw)
        end_all_connections()
        assert has_pending_input(raw)
        raw.close()
        assert has_pending_input(raw)


@pytest.mark.parametrize(
    "written", ["2026-03-29 00:30:00+00", "2026-03-29T02:30:00.000001+02", "0001-01-01 00:00:00.5+00", "9999-12-31Z"]
)
def test_times_are_parsed_as_by_django(written: str) -> None:
    stock = base.DatabaseWrapper(connection.settings_dict | {"OPTIONS": {}})
    with stock.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [written])
        (by_django,) = cursor.fetchone()
    stock.close()
    read = query(f"SELECT '{written}'::timestamptz")
    assert isinstance(read, datetime)
    assert (read, read.tzinfo) == (by_django, UTC)


@pytest.mark.parametrize(("zone", "is_quick"), [(None, True), ("Europe/Paris", False)])
def test_fast_parser_is_used_only_for_utc(zone: str | None, is_quick: bool) -> None:
    wrapper = DatabaseWrapper(connection.settings_dict | {"TIME_ZONE": zone, "OPTIONS": {}})
    loader = wrapper.get_connection_params()["context"].get_loader(base.TIMESTAMPTZ_OID, 0)
    assert issubclass(loader, TimestampLoader) is is_quick
