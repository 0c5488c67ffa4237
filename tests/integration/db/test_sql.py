"""Single-statement transactions: committed at once, with timeouts that do not outlast them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from django.db import OperationalError, connection

from jobs.domain.errors import StaleAttempt
from jobs.execution import transitions
from scheduler_project.settings.database import PREPARE_THRESHOLD_USES, build_database_settings
from tests.support.factories import make_execution, make_worker, place_on
from tests.support.own_connection import own_connection

pytestmark = pytest.mark.django_db(transaction=True)

DATABASE_URL = "postgres://user@localhost/name"
STATE = "SELECT state FROM jobs_execution"


@pytest.fixture
def other(db: None) -> Iterator[psycopg.Connection]:
    """A connection outside Django."""
    with own_connection() as other:
        yield other


def timeouts() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
        return list(cursor.fetchone())


def test_statement_is_committed_and_its_timeouts_are_reset(other: psycopg.Connection) -> None:
    hold = place_on(make_worker(), make_execution())
    before = timeouts()
    transitions.claim(hold)
    assert other.execute(STATE).fetchone() == ("claimed",)
    assert timeouts() == before


@pytest.mark.parametrize("name", ["statement_timeout", "lock_timeout"])
def test_statement_does_not_wait_longer_than_its_session_allows(other: psycopg.Connection, name: str) -> None:
    fence = place_on(make_worker(), make_execution())
    other.execute(f"{STATE} FOR UPDATE")
    with connection.cursor() as cursor:
        cursor.execute(f"SET {name} = '200ms'")
    with pytest.raises(OperationalError, match="timeout"):
        transitions.claim(fence)
    connection.close()
    other.rollback()
    transitions.claim(fence)


def test_frequent_statement_is_prepared_once(db: None) -> None:
    """Postgres then neither parses nor plans it again."""
    for _ in range(PREPARE_THRESHOLD_USES + 3):
        with pytest.raises(StaleAttempt):
            transitions.start(place_on(make_worker(), make_execution()), {})
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '/* start_attempts */%'")
        assert cursor.fetchone() == (1,)


def test_setting_turns_prepared_statements_off(db: None) -> None:
    settings = build_database_settings(DATABASE_URL, pool_size=1, statement_seconds=5, prepares_statements=False)
    assert settings["OPTIONS"]["prepare_threshold"] is None
