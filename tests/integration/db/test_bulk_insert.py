"""New rows of several models go to Postgres in one statement, thousands of them in several."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.db import bulk_insert
from jobs.db.bulk_insert import insert_rows
from jobs.models import Membership, Team
from tests.support.factories import make_user

pytestmark = pytest.mark.django_db


def test_rows_of_several_models_are_inserted_together() -> None:
    teams = [Team(name=f"team-{n}") for n in range(3)]
    members = [Membership(team=teams[-1], user=make_user())]
    with CaptureQueriesContext(connection) as queries:
        insert_rows(members, [], teams)
    assert len(queries) == 1
    connection.check_constraints()
    assert set(Team.objects.all()) == set(teams)
    assert list(Membership.objects.all()) == members
    assert not teams[0]._state.adding


def test_many_rows_are_inserted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_insert, "_BATCH_ROWS", 2)
    teams = [Team(name=f"team-{n}") for n in range(5)]
    members = [Membership(team=teams[-1], user=make_user()) for _ in range(3)]
    with CaptureQueriesContext(connection) as queries:
        insert_rows(teams, members)
    assert len(queries) == 3
    connection.check_constraints()
    assert (Team.objects.count(), Membership.objects.count()) == (5, 3)


def test_no_rows_take_no_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        insert_rows([], [])
    assert len(queries) == 0
