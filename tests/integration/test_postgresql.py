"""The pool gives out living connections only, and finds that out without asking them; times are read quickly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.backends.postgresql import base

from jobs.services.database import pooled
from scheduler_project.postgresql.base import DatabaseWrapper, InstantLoader, has_news
from tests.own_connection import own_connection

pytestmark = pytest.mark.django_db(transaction=True)


def ask(question: str) -> object:
    with pooled(), connection.cursor() as cursor:
        cursor.execute(question)
        (answer,) = cursor.fetchone()
        return answer


def end_all_connections() -> int:
    """As a restart of the server does."""
    with own_connection() as other:
        rows = other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(rows)


def test_connections_that_the_server_ended_are_never_given_out() -> None:
    assert ask("SELECT 1") == 1
    for _ in range(3):
        assert end_all_connections() >= 1
        assert ask("SELECT 1") == 1


def test_a_dead_connection_has_something_to_say_and_a_living_one_has_not() -> None:
    with pooled():
        connection.ensure_connection()
        raw = connection.connection
        assert not has_news(raw)
        end_all_connections()
        assert has_news(raw)
        raw.close()
        assert has_news(raw)


@pytest.mark.parametrize(
    "written", ["2026-03-29 00:30:00+00", "2026-03-29T02:30:00.000001+02", "0001-01-01 00:00:00.5+00", "9999-12-31Z"]
)
def test_times_are_read_as_django_reads_them(written: str) -> None:
    stock = base.DatabaseWrapper(connection.settings_dict | {"OPTIONS": {}})
    with stock.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [written])
        (by_django,) = cursor.fetchone()
    stock.close()
    read = ask(f"SELECT '{written}'::timestamptz")
    assert isinstance(read, datetime)
    assert (read, read.tzinfo) == (by_django, UTC)


@pytest.mark.parametrize(("zone", "is_quick"), [(None, True), ("Europe/Paris", False)])
def test_only_times_in_utc_are_read_quickly(zone: str | None, is_quick: bool) -> None:
    wrapper = DatabaseWrapper(connection.settings_dict | {"TIME_ZONE": zone, "OPTIONS": {}})
    loader = wrapper.get_connection_params()["context"].get_loader(base.TIMESTAMPTZ_OID, 0)
    assert issubclass(loader, InstantLoader) is is_quick
