"""Audits of pruned history: pruned instants are no differences, and results name their start."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from uuid_utils import compat

from jobs.definitions import lifecycle
from jobs.domain.errors import InvalidInput
from jobs.housekeeping.history_retention import prune_history
from jobs.models import DroppedRange, Execution, RetentionMark, Schedule
from jobs.models.ids import first_id
from jobs.verify import firings
from tests.support.past_schedules import MINUTE, audit, fire_all, instant_of, minutes_ago, past_schedule

pytestmark = pytest.mark.django_db


def test_pruned_instants_are_not_expected(fired: Schedule) -> None:
    horizon = instant_of(fired, 6)
    assert audit().pruned_before is None
    Execution.objects.filter(scheduled_for__lt=horizon).delete()
    assert audit().absent == 5
    RetentionMark.objects.create(pruned_before=horizon)
    found = audit()
    assert (found.clean, found.from_, found.pruned_before, found.fired) == (True, horizon, horizon, 5)
    later = instant_of(fired, 8)
    assert (audit(from_=later).from_, audit(from_=later).fired) == (later, 3)
    with pytest.raises(InvalidInput, match="is pruned and cannot be audited"):
        audit(to=instant_of(fired, 5))


def test_pruned_history_is_no_difference() -> None:
    """With versions, dropped ranges and limits, the audit covers only the remaining history."""
    week, day = 7 * 24 * 60, 24 * 60
    for fields in (
        {"catch_up": "none"},
        {"catch_up": "none", "ends_at": minutes_ago(6 * day)},
        {"catch_up": "none", "ends_at": minutes_ago(5 * day)},
        {"kind": "cron", "expression": "H * * * *"},
        {"expression": "3600", "max_count": 20},
        {"expression": "3600", "max_count": 1000},
        {"kind": "delay", "expression": "60"},
    ):
        past_schedule(week, **fields)
    fire_all()
    for schedule in Schedule.objects.all():
        lifecycle.pause_job(schedule.job_id, note="")
        lifecycle.resume_job(schedule.job_id)
    backdate_firings()
    whole = audit(from_=minutes_ago(2 * week))
    assert whole.clean, whole.differences

    pruned = prune_history(retention=timedelta(days=3))

    assert pruned.executions > 24
    assert pruned.dropped_ranges > 1
    found = audit(from_=minutes_ago(2 * week))
    assert (found.clean, found.from_) == (True, pruned.horizon), found.differences
    assert 0 < found.expected < whole.expected
    Execution.objects.filter(scheduled_for__gt=minutes_ago(day)).first().delete()  # type: ignore[union-attr]
    assert audit(from_=minutes_ago(2 * week)).absent == 1, "later gaps are still found"


def backdate_firings() -> None:
    for row in Execution.objects.all():
        moment = row.scheduled_for + MINUTE
        new_id = compat.uuid7(nanoseconds=int(moment.timestamp() * 1_000_000_000))
        Execution.objects.filter(id=row.id).update(
            id=new_id, run_id=new_id, fired_at=moment, state=row.state if row.ended_at else "succeeded", ended_at=moment
        )
    for dropped in DroppedRange.objects.all():
        moment = dropped.last
        DroppedRange.objects.filter(id=dropped.id).update(id=first_id(moment), created_at=moment)


@pytest.mark.django_db(transaction=True)
def test_each_batch_skips_history_pruned_before_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention that deletes between two batches of an audit must not cause a difference in the second."""
    monkeypatch.setattr(firings, "BATCH_SCHEDULES", 1)
    schedules = sorted([past_schedule(10.5), past_schedule(10.5)], key=lambda schedule: schedule.id)
    fire_all()
    horizon = instant_of(schedules[1], 6)
    audit_batch = firings._audit_batch

    def audit_and_prune(*arguments: Any) -> None:
        audit_batch(*arguments)
        monkeypatch.undo()
        monkeypatch.setattr(firings, "BATCH_SCHEDULES", 1)
        pruning = Thread(target=prune)
        pruning.start()
        pruning.join(timeout=30)

    def prune() -> None:
        try:
            RetentionMark.objects.create(pruned_before=horizon)
            Execution.objects.filter(scheduled_for__lt=horizon).delete()
        finally:
            connection.close()

    monkeypatch.setattr(firings, "_audit_batch", audit_and_prune)
    found = audit()
    assert (found.clean, found.schedules, found.fired, found.from_) == (True, 2, 15, horizon), found.differences
