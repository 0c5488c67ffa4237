"""Phases follow states, and moves that keep the phase write no index."""

from __future__ import annotations

import pytest
from django.db import connection

from jobs.domain.states import ACTIVE, HELD, State
from jobs.execution import transitions
from jobs.models import Execution
from jobs.models.ids import new_id
from tests.support.factories import make_execution, make_worker, place_on

pytestmark = pytest.mark.django_db

HOT_UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'jobs_execution'"


def phase_of(state: State) -> str | None:
    if state in ACTIVE:
        return HELD
    return None if state is State.SUCCEEDED else state.value


@pytest.mark.parametrize("state", State)
def test_phase_follows_the_state(state: State) -> None:
    with connection.cursor() as cursor:
        # The constraints on other columns of the row would refuse some of these states.
        cursor.execute("CREATE TEMPORARY TABLE moved (LIKE jobs_execution) ON COMMIT DROP")
        cursor.execute("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname LIKE 'execution_phase%'")
        for (definition,) in cursor.fetchall():
            cursor.execute(definition.replace("public.jobs_execution", "moved"))
        row = make_execution()
        cursor.execute("INSERT INTO moved SELECT * FROM jobs_execution WHERE id = %s", [row.id])
        cursor.execute("UPDATE moved SET state = %s RETURNING phase", [state.value])
        assert cursor.fetchone() == (phase_of(state),)
        cursor.execute("INSERT INTO moved SELECT * FROM moved RETURNING phase")
        assert cursor.fetchone() == (phase_of(state),)
        cursor.execute("UPDATE moved SET state = 'ready' RETURNING phase")
        assert cursor.fetchone() == ("ready",)


def test_no_index_names_what_a_claim_and_a_start_change() -> None:
    changed = {"state", "claimed_at", "started_at", "published_at", "exit_code", "result", "progress"}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT a.attname FROM pg_index i JOIN pg_depend d ON d.objid = i.indexrelid"
            " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = d.refobjsubid"
            " WHERE i.indrelid = 'jobs_execution'::regclass AND d.refobjid = i.indrelid"
        )
        named = {column for (column,) in cursor.fetchall()}
    assert {"id", "phase", "ended_at", "job_id"} <= named
    assert named & changed == set()


def test_claim_and_start_write_no_index() -> None:
    fence = place_on(make_worker(), make_execution())
    with connection.cursor() as cursor:
        cursor.execute(HOT_UPDATES)
        updates, hot = cursor.fetchone()
        transitions.claim(fence)
        transitions.start(fence, {})
        cursor.execute(HOT_UPDATES)
        assert cursor.fetchone() == (updates + 2, hot + 2)


def test_phase_cannot_be_written_apart_from_the_state() -> None:
    row = make_execution()
    copy = Execution.objects.values().get(id=row.id) | {"id": new_id(), "run_id": new_id(), "phase": HELD}
    assert Execution.objects.create(**copy)
    assert Execution.objects.filter(id=copy["id"], phase="ready").exists()
