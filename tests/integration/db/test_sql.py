"""Single-statement transactions: committed at once, with timeouts that do not outlast them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from django.db import OperationalError, connection

from jobs.db import sql
from jobs.execution import transitions
from tests.support.factories import make_execution, make_worker, place_on
from tests.support.own_connection import own_connection

pytestmark = pytest.mark.django_db(transaction=True)

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


@pytest.mark.parametrize(("within", "lock_seconds"), [(0.2, 30.0), (30.0, 0.2)])
def test_statement_does_not_wait_long_for_locks(
    other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, within: float, lock_seconds: float
) -> None:
    monkeypatch.setattr(transitions, "STATEMENT_TIMEOUT_SECONDS", within)
    monkeypatch.setattr(sql, "LOCK_TIMEOUT_SECONDS", lock_seconds)
    hold = place_on(make_worker(), make_execution())
    other.execute(f"{STATE} FOR UPDATE")
    with pytest.raises(OperationalError, match="timeout"):
        transitions.claim(hold)
    other.rollback()
    transitions.claim(hold)
