"""The auditor knows what retention has pruned: it neither misses it nor is silent about where it begins."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from uuid_utils import compat

from jobs.errors import InvalidInput
from jobs.models import DroppedRange, Execution, RetentionMark, Schedule
from jobs.models.ids import first_id
from jobs.services import auditing, commands
from jobs.services.retention import prune_history
from tests.integration.services.test_auditing import MINUTE, audit, fire_all, instant_of, minutes_ago, past_schedule

pytestmark = pytest.mark.django_db


@pytest.fixture
def fired() -> Schedule:
    """Ten instants, one to ten minutes after its start."""
    schedule = past_schedule(10.5)
    fire_all()
    return schedule


def test_what_was_pruned_is_not_asked_for(fired: Schedule) -> None:
    kept = instant_of(fired, 6)
    assert audit().pruned_before is None
    Execution.objects.filter(scheduled_for__lt=kept).delete()
    assert audit().absent == 5
    RetentionMark.objects.create(pruned_before=kept)
    found = audit()
    assert (found.clean, found.from_, found.pruned_before, found.fired) == (True, kept, kept, 5)
    later = instant_of(fired, 8)
    assert (audit(from_=later).from_, audit(from_=later).fired) == (later, 3)
    with pytest.raises(InvalidInput, match="is pruned and cannot be audited"):
        audit(to=instant_of(fired, 5))


def test_what_retention_has_deleted_is_no_difference() -> None:
    """With versions, dropped ranges and limits: the auditor speaks of what is left, and only of that."""
    week, day = 7 * 24 * 60, 24 * 60
    for fields in (
        {"catch_up": "none"},
        {"kind": "cron", "expression": "H * * * *"},
        {"expression": "3600", "max_count": 20},
        {"expression": "3600", "max_count": 1000},
        {"kind": "delay", "expression": "60"},
    ):
        past_schedule(week, **fields)
    fire_all()
    for schedule in Schedule.objects.all():
        commands.pause_job(schedule.job_id, note="")
        commands.resume_job(schedule.job_id)
    as_if_it_had_fired_in_time()
    whole = audit(from_=minutes_ago(2 * week))
    assert whole.clean, whole.differences

    pruned = prune_history(retention=timedelta(days=3))

    assert pruned.executions > 24
    assert pruned.dropped_ranges > 1
    found = audit(from_=minutes_ago(2 * week))
    assert (found.clean, found.from_) == (True, pruned.horizon), found.differences
    assert 0 < found.expected < whole.expected
    Execution.objects.filter(scheduled_for__gt=minutes_ago(day)).first().delete()  # type: ignore[union-attr]
    assert audit(from_=minutes_ago(2 * week)).absent == 1, "what is missing since is still seen"


def as_if_it_had_fired_in_time() -> None:
    for row in Execution.objects.all():
        moment = row.scheduled_for + MINUTE
        made = compat.uuid7(nanoseconds=int(moment.timestamp() * 1_000_000_000))
        Execution.objects.filter(id=row.id).update(
            id=made, run_id=made, fired_at=moment, state=row.state if row.ended_at else "succeeded", ended_at=moment
        )
    for dropped in DroppedRange.objects.all():
        moment = dropped.last
        DroppedRange.objects.filter(id=dropped.id).update(id=first_id(moment), created_at=moment)


@pytest.mark.django_db(transaction=True)
def test_a_batch_begins_after_what_was_pruned_before_its_own_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention that deletes between two batches of an audit must not look like a difference in the second."""
    monkeypatch.setattr(auditing, "BATCH_SCHEDULES", 1)
    schedules = sorted([past_schedule(10.5), past_schedule(10.5)], key=lambda schedule: schedule.id)
    fire_all()
    kept = instant_of(schedules[1], 6)
    audit_batch = auditing._audit_batch

    def audit_and_prune(*arguments: Any) -> None:
        audit_batch(*arguments)
        monkeypatch.undo()
        monkeypatch.setattr(auditing, "BATCH_SCHEDULES", 1)
        pruning = Thread(target=prune)
        pruning.start()
        pruning.join(timeout=30)

    def prune() -> None:
        try:
            RetentionMark.objects.create(pruned_before=kept)
            Execution.objects.filter(scheduled_for__lt=kept).delete()
        finally:
            connection.close()

    monkeypatch.setattr(auditing, "_audit_batch", audit_and_prune)
    found = audit()
    assert (found.clean, found.schedules, found.fired, found.from_) == (True, 2, 15, kept), found.differences
