"""The audit of firings finds every kind of difference and names it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from jobs.definitions import lifecycle
from jobs.domain.recurrence import add_jitter
from jobs.models import DroppedRange, Execution, Schedule, ScheduleVersion
from jobs.models.ids import new_id
from jobs.verify import firings
from jobs.verify.report import DifferenceKind
from tests.support.past_schedules import (
    MINUTE,
    audit,
    differences,
    fire_all,
    instant_of,
    minutes_ago,
    past_schedule,
    paused_since,
)

pytestmark = pytest.mark.django_db


def copy_of_an_execution(schedule: Schedule, instant: datetime) -> Execution:
    copied = Execution.objects.filter(schedule=schedule).earliest("scheduled_for")
    copied.id = new_id()
    copied.run_id = copied.id
    copied.scheduled_for = instant
    copied.fired_at = max(instant, copied.fired_at)
    copied.save(force_insert=True)
    return copied


def test_firing_during_a_pause_is_extra() -> None:
    schedule = past_schedule(10.5)
    lifecycle.pause_job(schedule.job_id, note="")
    paused_since(schedule, 5.75)
    moved = Execution.objects.earliest("scheduled_for")
    Execution.objects.filter(id=moved.id).update(scheduled_for=instant_of(schedule, 7))
    assert differences(audit()) == [("absent", instant_of(schedule, 1)), ("extra", instant_of(schedule, 7))]


def test_deleted_execution_is_absent(fired: Schedule) -> None:
    Execution.objects.filter(scheduled_for__in=[instant_of(fired, 3), instant_of(fired, 10)]).delete()
    found = audit()
    assert (found.clean, found.absent, found.expected, found.fired) == (False, 2, 10, 8)
    assert differences(found) == [("absent", instant_of(fired, 3)), ("absent", instant_of(fired, 10))]
    assert audit(from_=instant_of(fired, 4), to=instant_of(fired, 9)).clean, "outside the range"


def test_moved_execution_is_absent_and_extra(fired: Schedule) -> None:
    moved = instant_of(fired, 3) + timedelta(seconds=1)
    Execution.objects.filter(scheduled_for=instant_of(fired, 3)).update(scheduled_for=moved)
    assert differences(audit()) == [("absent", instant_of(fired, 3)), ("extra", moved)]


@pytest.mark.parametrize("number", [-5, 0, 3.5, 10.25])
def test_execution_that_was_never_due_is_extra(fired: Schedule, number: float) -> None:
    copy_of_an_execution(fired, instant_of(fired, 0) + number * MINUTE)
    found = audit()
    assert (found.extra, found.fired, found.clean) == (1, 10, False)
    assert differences(found) == [("extra", instant_of(fired, 0) + number * MINUTE)]


def test_future_execution_is_early(fired: Schedule) -> None:
    copy_of_an_execution(fired, instant_of(fired, 11))
    assert differences(audit(to=minutes_ago(-5))) == [("early", instant_of(fired, 11))]


def test_execution_beyond_the_limit_is_extra() -> None:
    schedule = past_schedule(10.5, max_count=4)
    fire_all()
    copy_of_an_execution(schedule, instant_of(schedule, 5))
    assert differences(audit()) == [("extra", instant_of(schedule, 5))]


def test_requested_execution_is_not_extra_and_covers_its_instant(fired: Schedule) -> None:
    copied = copy_of_an_execution(fired, instant_of(fired, 0))
    Execution.objects.filter(id=copied.id).update(trigger="manual")
    Execution.objects.filter(scheduled_for=instant_of(fired, 4)).update(trigger="manual", fired_at=minutes_ago(100))
    assert audit().clean


@pytest.mark.parametrize("page", [1, 2, 10_000])
def test_two_executions_of_one_instant_are_a_duplicate(
    fired: Schedule, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firings, "PAGE_EXECUTIONS", page)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE jobs_execution DROP CONSTRAINT execution_once_per_instant")
    for _ in range(2):
        copy_of_an_execution(fired, instant_of(fired, 5))
    found = audit()
    assert (found.duplicate, found.fired, found.expected, found.clean) == (2, 10, 10, False)
    assert differences(found) == [("duplicate", instant_of(fired, 5))] * 2


def test_fired_and_dropped_instant_is_a_duplicate() -> None:
    schedule = past_schedule(50.5, catch_up="latest")
    fire_all()
    latest = Execution.objects.get()
    Execution.objects.filter(id=latest.id).update(scheduled_for=instant_of(schedule, 20))
    assert differences(audit()) == [("duplicate", instant_of(schedule, 20)), ("absent", latest.scheduled_for)]


@pytest.mark.parametrize(("count", "kind"), [(48, "absent"), (50, "extra")])
def test_dropped_range_with_wrong_count_is_found(count: int, kind: str) -> None:
    past_schedule(50.5, catch_up="latest")
    fire_all()
    DroppedRange.objects.update(count=count)
    assert [what for what, _ in differences(audit())] == [kind]


def test_dropped_range_without_due_instants_is_extra(fired: Schedule) -> None:
    now = datetime.now(UTC)
    for first in (instant_of(fired, 3) + timedelta(seconds=1), instant_of(fired, -9)):
        DroppedRange.objects.create(
            schedule=fired, first=first, last=first + MINUTE / 2, count=3, reason="catch_up", created_at=now
        )
    found = audit()
    assert (found.extra, found.dropped, len(found.differences)) == (6, 0, 2)


def test_firing_before_its_time_is_early(fired: Schedule) -> None:
    Execution.objects.filter(scheduled_for=instant_of(fired, 5)).update(
        fired_at=instant_of(fired, 5) - timedelta(microseconds=1)
    )
    assert differences(audit()) == [("early", instant_of(fired, 5))]


def test_firing_before_its_jittered_time_is_early() -> None:
    schedule = past_schedule(10.5, jitter_seconds=50)
    fire_all()
    instant = instant_of(schedule, 2)
    Execution.objects.filter(scheduled_for=instant).update(fired_at=instant)
    assert add_jitter(schedule.id, instant, 50) > instant
    assert differences(audit()) == [("early", instant)]


def test_skipped_instant_is_absent() -> None:
    schedule = past_schedule(3.5)
    over = instant_of(schedule, 2)
    Schedule.objects.update(next_instant=over, next_fire_at=over)
    fire_all()
    assert differences(audit()) == [("absent", instant_of(schedule, 1))]


def test_schedule_without_next_instant_is_found(fired: Schedule) -> None:
    Execution.objects.filter(scheduled_for=instant_of(fired, 10)).delete()
    Schedule.objects.update(next_instant=None, next_fire_at=None)
    assert differences(audit()) == [("absent", instant_of(fired, 10))]


def test_unfired_instant_is_overdue_after_the_tolerance() -> None:
    schedule = past_schedule(3.5)
    found = audit()
    assert (found.overdue, found.absent, found.expected, found.clean) == (3, 0, 3, False)
    assert differences(found)[0] == ("overdue", instant_of(schedule, 1))
    tolerant = audit(tolerance_seconds=100)
    assert tolerant.overdue == 1, "the others are younger than 100 s"
    assert audit(tolerance_seconds=1000).clean
    fire_all()
    assert audit().clean


def test_jitter_delays_when_an_instant_is_overdue() -> None:
    past_schedule(1.5, jitter_seconds=3600 * 24 * 365)
    found = audit()
    assert (found.clean, found.expected) == (True, 0)


@pytest.mark.parametrize("settled", [0, 2])
def test_quarantined_schedule_is_counted_separately(settled: int) -> None:
    schedule = past_schedule(4.5, max_count=None)
    if settled:
        fire_all()
        Execution.objects.filter(scheduled_for__gt=instant_of(schedule, settled)).delete()
    Schedule.objects.update(next_instant=None, next_fire_at=None, quarantined_at=datetime.now(UTC))
    found = audit()
    assert (found.clean, found.quarantined, found.fired) == (True, 1, settled)
    if settled:
        Execution.objects.filter(scheduled_for=instant_of(schedule, 1)).delete()
        assert differences(audit()) == [("absent", instant_of(schedule, 1))]


def test_unreadable_history_is_a_difference_unless_quarantined(fired: Schedule) -> None:
    ScheduleVersion.objects.update(expression="often")
    assert differences(audit()) == [(DifferenceKind.UNCOMPUTABLE.value, None)]
    past_schedule(2.5)
    fire_all()
    assert audit().fired == 2, "the other schedules are audited"
    Schedule.objects.filter(id=fired.id).update(quarantined_at=datetime.now(UTC))
    assert audit().clean
