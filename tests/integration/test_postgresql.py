"""The pool gives out living connections only, and finds that out without asking them."""

from __future__ import annotations

import pytest
from django.db import connection

from jobs.services.database import pooled
from scheduler_project.postgresql.base import has_news
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
