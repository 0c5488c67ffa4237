"""Concurrent edits, beats, pauses and finishing runs: every instant fires once, by the version in force then."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from jobs.definitions import lifecycle
from jobs.definitions.editing import edit_job
from jobs.domain.errors import Conflict, InvalidInput, NotFound
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.job_spec import DependencySpec, ScheduleSpec
from jobs.domain.recurrence import CatchUp, Kind
from jobs.execution.delays import arm_idle_delays
from jobs.models import Dependency, Execution, Job, JobVersion, Schedule
from jobs.scheduling import calendars, schedules
from jobs.scheduling.firing import fire_due_schedules
from jobs.verify.firings import audit_firings
from tests.support.barriers import at_once, beside
from tests.support.factories import make_job
from tests.support.schedules import add_schedule

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
ROUNDS = 12


def make_busy(job: Job, count: int, *, calendar: str | None = None) -> list[Schedule]:
    """Create schedules that have been due every second for 20 seconds."""
    created = datetime.now(UTC) - timedelta(seconds=20)
    spec = ScheduleSpec(Kind.EVERY, "1", catch_up=CatchUp.ALL, calendar=calendar)
    found = calendars.find_calendars(job.owner_id, [spec], lock=False)
    planned = [
        schedules.prepare_schedule(n, spec, created, calendar=found[calendar] if calendar else None)
        for n in range(count)
    ]
    schedules.create_schedules(job, planned, created)
    return planned


def beat() -> None:
    for _ in range(ROUNDS * 3):
        fire_due_schedules(limit=2)


def assert_clean() -> None:
    while fire_due_schedules().schedules:
        pass
    now = datetime.now(UTC)
    audit = audit_firings(now - timedelta(hours=1), now)
    assert audit.clean, audit.differences
    assert audit.fired > 0


def test_concurrent_edits_and_beats_fire_every_instant_once() -> None:
    job = make_job(max_concurrency=None)
    planned = make_busy(job, 3)
    seconds = ["1", "2", "1.5", "3"]

    def editor(seed: int) -> Callable[[], None]:
        choice = random.Random(seed)  # noqa: S311 no secret

        def run() -> None:
            for n in range(ROUNDS):
                edits = [ScheduleEdit(id=s.id) for s in planned]
                index = choice.randrange(len(planned))
                edits[index] = ScheduleEdit(
                    id=planned[index].id, kind=Kind.EVERY, expression=choice.choice(seconds), jitter_seconds=n % 2
                )
                edit_job(job.id, JobEdit(schedules=edits, args=[f"{seed}-{n}"]))

        return run

    at_once([editor(1), editor(2), editor(3), beat, beat])

    assert_clean()
    numbers = list(JobVersion.objects.filter(job=job).order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, 3 * ROUNDS + 2)), "no edit overwrote another"
    for schedule in planned:
        versions = list(schedule.history.order_by("number"))
        assert [v.to_at for v in versions] == [v.from_at for v in versions[1:]] + [None]


@pytest.mark.parametrize("overlap", ["skip", "cancel_running"])
def test_concurrent_edits_and_locking_beats_do_not_deadlock(overlap: str) -> None:
    job = make_job(max_concurrency=1, overlap=overlap)
    planned = make_busy(job, 2)

    def edit() -> None:
        for n in range(ROUNDS):
            edits = [ScheduleEdit(id=s.id, kind=Kind.EVERY, expression=str(1 + n % 2)) for s in planned]
            edit_job(job.id, JobEdit(schedules=edits))

    def pause() -> None:
        for _ in range(ROUNDS):
            lifecycle.pause_job(job.id, note="")
            lifecycle.resume_job(job.id)

    at_once([edit, pause, beat, beat])
    assert_clean()


def test_concurrent_edits_and_finishing_runs_keep_a_delay_armed() -> None:
    job = make_job(max_concurrency=None)
    delay = add_schedule(job, Kind.DELAY, "1")

    def finish_runs() -> None:
        for _ in range(ROUNDS * 2):
            fire_due_schedules()
            for execution_id in Execution.objects.filter(job=job, state="ready").values_list("id", flat=True):
                lifecycle.cancel_execution(execution_id, by="test")

    def edit() -> None:
        for n in range(ROUNDS):
            edits = [ScheduleEdit(id=delay.id, kind=Kind.DELAY, expression=f"{1 + n % 3}")]
            edit_job(job.id, JobEdit(schedules=edits))

    at_once([finish_runs, edit, edit])
    # A finishing run skips a schedule that an edit has locked; the sweep arms it.
    arm_idle_delays()
    schedule = Schedule.objects.get()
    under_way = Execution.objects.filter(job=job, state="ready").exists()
    assert (schedule.next_instant is None) == under_way, "armed, or its run arms it"


def test_calendar_edits_reach_all_schedules_despite_concurrent_edits() -> None:
    job = make_job(max_concurrency=None)
    other = make_job(owner=job.owner, max_concurrency=None)
    calendar = calendars.create_calendar(owner=job.owner, name="holidays", dates=[])
    planned, busy = make_busy(job, 2, calendar="holidays"), make_busy(other, 2, calendar="holidays")
    day = datetime.now(UTC).date() + timedelta(days=30)

    def edit_calendar() -> None:
        for n in range(ROUNDS):
            calendars.edit_calendar(calendar.id, dates=[day + timedelta(days=d) for d in range(n % 5 + 1)])

    def edit() -> None:
        for n in range(ROUNDS):
            own = [day - timedelta(days=1 + n % 2)]
            edits = [ScheduleEdit(id=s.id, excluded_dates=own, calendar="holidays") for s in planned]
            edit_job(job.id, JobEdit(schedules=edits))

    def toggle() -> None:
        for n in range(ROUNDS):
            name = None if n % 2 else "holidays"
            try:
                edit_job(other.id, JobEdit(schedules=[ScheduleEdit(id=s.id, calendar=name) for s in busy]))
            except Conflict:
                continue

    at_once([edit_calendar, edit, toggle, beat, beat])
    assert_clean()
    calendar.refresh_from_db()
    for schedule in Schedule.objects.all():
        dates = calendar.dates if schedule.calendar_id else []
        assert schedule.excluded_dates == sorted({*schedule.written_dates, *dates})
        assert schedule.history.get(to_at__isnull=True).excluded_dates == schedule.excluded_dates


def depend(job: Job, upstream: Job) -> bool:
    try:
        edit_job(job.id, JobEdit(dependencies=[DependencySpec(upstream.id)]))
    except InvalidInput:
        return False
    return True


def test_concurrent_edits_cannot_create_a_cycle() -> None:
    one = make_job()
    two = make_job(owner=one.owner)
    assert beside(lambda: depend(one, two), lambda: depend(two, one)) is False
    assert list(Dependency.objects.values_list("job_id", "upstream_id")) == [(one.id, two.id)]


def test_schedule_that_gets_a_calendar_during_its_edit_has_the_new_dates() -> None:
    job = make_job()
    calendar = calendars.create_calendar(owner=job.owner, name="holidays", dates=[])
    (schedule,) = make_busy(job, 1)
    day = datetime.now(UTC).date() + timedelta(days=30)
    edits = [ScheduleEdit(id=schedule.id, calendar="holidays")]
    beside(
        lambda: calendars.edit_calendar(calendar.id, dates=[day]),
        lambda: edit_job(job.id, JobEdit(schedules=edits)),
    )
    assert Schedule.objects.get().excluded_dates == [day]


def test_job_is_deleted_once_despite_concurrent_commands() -> None:
    job = make_job(max_concurrency=None)
    planned = make_busy(job, 2)

    def delete() -> bool:
        try:
            lifecycle.delete_job(job.id, by="test")
        except NotFound:
            return False
        return True

    def edit() -> bool:
        try:
            for n in range(ROUNDS):
                edits = [ScheduleEdit(id=s.id, kind=Kind.EVERY, expression=f"{1 + n % 2}") for s in planned]
                edit_job(job.id, JobEdit(schedules=edits))
        except (Conflict, NotFound, InvalidInput):
            return False
        return True

    def fire() -> bool:
        beat()
        return True

    done = at_once([delete, delete, edit, fire, fire])
    assert sorted(done[:2]) == [False, True]
    assert not Schedule.with_deleted.filter(next_instant__isnull=False).exists()
    assert not Execution.objects.exclude(state="cancelled").exists()
    now = datetime.now(UTC)
    assert audit_firings(now - timedelta(hours=1), now).clean
