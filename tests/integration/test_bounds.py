"""A statement that is a transaction of its own is committed when it is answered, is bounded, and leaves no bounds."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from django.db import OperationalError, connection

from jobs import sql
from jobs.services import transitions
from tests.factories import make_execution, make_worker, place_on
from tests.own_connection import own_connection

pytestmark = pytest.mark.django_db(transaction=True)

STATE = "SELECT state FROM jobs_execution"


@pytest.fixture
def other(db: None) -> Iterator[psycopg.Connection]:
    """Somebody else, outside of everything that Django does."""
    with own_connection() as other:
        yield other


def bounds() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
        return list(cursor.fetchone())


def test_it_is_committed_and_its_bounds_are_gone_when_it_is_answered(other: psycopg.Connection) -> None:
    hold = place_on(make_worker(), make_execution())
    before = bounds()
    transitions.claim(hold)
    assert other.execute(STATE).fetchone() == ("claimed",)
    assert bounds() == before


@pytest.mark.parametrize(("within", "lock_seconds"), [(0.2, 30.0), (30.0, 0.2)])
def test_it_waits_for_nobody_for_long(
    other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, within: float, lock_seconds: float
) -> None:
    monkeypatch.setattr(transitions, "SECONDS", within)
    monkeypatch.setattr(sql, "LOCK_SECONDS", lock_seconds)
    hold = place_on(make_worker(), make_execution())
    other.execute(f"{STATE} FOR UPDATE")
    with pytest.raises(OperationalError, match="timeout"):
        transitions.claim(hold)
    other.rollback()
    transitions.claim(hold)
