"""A firing concurrent with an edit uses one version: program, policy and dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest
from django.db import connection, transaction

from jobs.db import sql
from jobs.definitions.editing import edit_job
from jobs.domain.choices import Condition, Overlap
from jobs.domain.job_edit import JobEdit
from jobs.domain.job_spec import DependencySpec
from jobs.models import Execution
from jobs.scheduling.firing import fire_due_schedules
from tests.support.barriers import DEADLINE_SECONDS, somebody_waits
from tests.support.factories import make_execution, make_job, make_schedule
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

GATE = """
CREATE OR REPLACE FUNCTION gate() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN true; END $$
"""


@contextmanager
def locking_stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the statement that locks due schedules after it has its snapshot and before it locks a row."""
    text = sql.statement("lock_due_schedules")
    stopped = text.replace("\n WHERE ", "\n WHERE gate() AND ", 1)
    assert stopped != text
    monkeypatch.setattr(
        sql, "statement", lambda name, read=sql.statement: stopped if name == "lock_due_schedules" else read(name)
    )
    with connection.cursor() as cursor:
        cursor.execute(GATE)
        cursor.execute("SELECT pg_advisory_lock(4711)")
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(4711)")


def test_schedule_locked_during_an_edit_fires_by_the_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = make_job()
    make_execution(job=upstream)  # unfinished, so its dependents wait
    job = make_job(owner=upstream.owner, name="downstream", priority=1)
    running = make_execution(job=job)
    at = datetime.now(UTC) + timedelta(seconds=3)
    make_schedule(job=job, expression="3600", starts_at=at, next_instant=at)

    def beat() -> None:
        try:
            fire_due_schedules()
        finally:
            connection.close()

    beating = Thread(target=beat, daemon=True)
    edit = JobEdit(
        priority=9,
        max_concurrency=2,
        overlap=Overlap.SKIP,
        dependencies=[DependencySpec(upstream.id, Condition.SUCCESS)],
    )
    with locking_stopped(monkeypatch), transaction.atomic():
        edit_job(job.id, edit)
        # Due after the edit has fired due instants, and read by a beat before the edit commits.
        wait_for(lambda: datetime.now(UTC) > at, "the instant is due")
        beating.start()
        wait_for(somebody_waits, "the beat waits at the gate")
    beating.join(DEADLINE_SECONDS)
    fired = Execution.objects.exclude(id=running.id).get(job=job)
    assert (fired.version.priority, fired.state) == (9, "blocked"), "a new version without its dependencies"
