"""The auditor finds nothing wrong after real firing, whatever the schedule, and says what it counted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from jobs.errors import InvalidInput
from jobs.models import DroppedRange, Execution, Job, RetentionMark, Schedule, ScheduleVersion
from jobs.models.ids import new_id
from jobs.recurrence import jittered
from jobs.services import auditing, commands
from jobs.services.audit_report import Audit, Tally
from jobs.services.auditing import audit_firings
from jobs.services.firing import fire_due_schedules
from jobs.services.schedules import recurrence_of
from tests.factories import make_job

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def minutes_ago(minutes: float) -> datetime:
    return datetime.now(UTC) - minutes * MINUTE


def past_schedule(minutes: float, *, job: Job | None = None, **fields: Any) -> Schedule:
    """As if it had been created that long ago, and nothing had fired since: every minute, caught up with."""
    begun = minutes_ago(minutes)
    values: dict[str, Any] = {"kind": "every", "expression": "60", "starts_at": begun, "catch_up": "all"} | fields
    schedule = Schedule(job=job or make_job(), id=new_id(), **values)
    first = begun if schedule.kind == "delay" else recurrence_of(schedule).next_after(begun)
    assert first is not None
    schedule.next_instant = first
    schedule.next_fire_at = jittered(schedule.id, first, schedule.jitter_seconds)
    schedule.save()
    kept = ("kind", "expression", "timezone", "starts_at", "ends_at", "jitter_seconds", "excluded_dates", "max_count")
    ScheduleVersion.objects.create(
        schedule=schedule,
        number=1,
        from_at=begun - timedelta(microseconds=1) if schedule.kind == "delay" else begun,
        **{name: getattr(schedule, name) for name in kept},
    )
    return schedule


def fire_all() -> None:
    while fire_due_schedules().schedules:
        pass


def audit(**options: Any) -> Audit:
    return audit_firings(options.pop("from_", minutes_ago(10_000)), options.pop("to", datetime.now(UTC)), **options)


def differences(found: Audit) -> list[tuple[str, datetime | None]]:
    return [(each.what.value, each.instant) for each in found.differences]


def instant_of(schedule: Schedule, number: int) -> datetime:
    return schedule.starts_at + number * MINUTE


@pytest.fixture
def fired() -> Schedule:
    """Ten instants, one to ten minutes after its start."""
    schedule = past_schedule(10.5)
    fire_all()
    assert Execution.objects.count() == 10
    assert audit().clean
    return schedule


def test_nothing_is_clean() -> None:
    found = audit()
    assert (found.clean, found.schedules, found.expected, found.lateness_ms) == (True, 0, 0, None)


def test_every_instant_that_fired_is_expected_and_its_lateness_measured() -> None:
    past_schedule(10.5)
    fire_all()
    found = audit()
    assert found.clean
    assert (found.schedules, found.executions, found.expected, found.fired) == (1, 10, 10, 10)
    assert found.lateness_ms is not None
    assert 29_000 < found.lateness_ms.max - 9 * 60_000 < 40_000, "the first instant lay nine and a half minutes back"
    assert 4 * 60_000 < found.lateness_ms.p50 < 5 * 60_000
    assert found.lateness_ms.p50 < found.lateness_ms.p90 <= found.lateness_ms.p99 <= found.lateness_ms.max


@pytest.mark.parametrize(
    ("policy", "minutes", "counted"),
    [
        ("latest", 5.5, {"fired": 1, "missed": 4}),
        ("none", 5.5, {"missed": 5}),
        ("latest", 50.5, {"fired": 1, "dropped": 49}),
        ("none", 500.5, {"dropped": 500}),
    ],
)
def test_what_catching_up_left_out_is_explained(policy: str, minutes: float, counted: dict[str, int]) -> None:
    past_schedule(minutes, catch_up=policy)
    fire_all()
    found = audit()
    shown = {name: n for name in ("fired", "missed", "skipped", "dropped") if (n := getattr(found, name))}
    assert (found.clean, shown) == (True, counted)
    assert found.expected == sum(counted.values())


def test_a_range_is_cut_out_of_what_was_dropped() -> None:
    schedule = past_schedule(500.5, catch_up="none")
    fire_all()
    found = audit(from_=instant_of(schedule, 101), to=instant_of(schedule, 310))
    assert (found.clean, found.expected, found.dropped) == (True, 210, 210)


def test_skipped_ones_are_explained() -> None:
    past_schedule(3.5, job=make_job(overlap="skip", max_concurrency=1))
    fire_all()
    found = audit()
    assert (found.clean, found.fired, found.skipped) == (True, 1, 2)


def test_jitter_cron_the_sun_and_excluded_dates_are_recomputed() -> None:
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    for fields in (
        {"jitter_seconds": 50},
        {"kind": "cron", "expression": "H/7 * * * *"},
        {"kind": "cron", "expression": "*/20 * * * *", "timezone": "America/New_York", "jitter_seconds": 600},
        {"kind": "cron", "expression": "5 * * * *", "excluded_dates": [yesterday]},
        {"kind": "every", "expression": "3600", "excluded_dates": [yesterday]},
        {"kind": "solar", "expression": "sunrise 48.8566,2.3522"},
    ):
        past_schedule(3 * 24 * 60, **fields)
    fire_all()
    found = audit()
    assert (found.clean, found.schedules) == (True, 6), found.differences
    assert found.fired + found.skipped == Execution.objects.count() > 3 * 24 * 60


def test_a_limited_number_of_instants_ends_the_schedule() -> None:
    schedules = [
        past_schedule(10.5, max_count=4),
        past_schedule(300.5, max_count=3, kind="cron", expression="H * * * *"),
    ]
    fire_all()
    found = audit()
    assert (found.clean, found.expected, found.fired) == (True, 7, 7)
    later = audit(from_=instant_of(schedules[0], 4))
    assert (later.clean, later.fired) == (True, 1), "what lies before the range counts towards the limit"


def test_an_end_and_a_single_instant() -> None:
    past_schedule(10.5, ends_at=minutes_ago(5))
    past_schedule(10.5, kind="at", expression=minutes_ago(3).isoformat())
    fire_all()
    found = audit()
    assert (found.clean, found.fired) == (True, 6)


def test_a_fixed_delay_is_taken_at_its_word_but_not_early() -> None:
    past_schedule(10.5, kind="delay", job=make_job(overlap="queue"))
    fire_all()
    assert audit().clean
    assert audit().fired == 1
    Execution.objects.update(fired_at=minutes_ago(11))
    assert [what for what, _ in differences(audit())] == ["early"]


def paused_since(schedule: Schedule, minutes: float) -> None:
    """Moves the pause that began just now into the past."""
    begun = minutes_ago(minutes)
    ScheduleVersion.objects.filter(schedule=schedule, number=1).update(to_at=begun)
    Execution.objects.filter(schedule=schedule, scheduled_for__gt=begun).delete()
    settled = Execution.objects.filter(schedule=schedule).count()
    ScheduleVersion.objects.filter(schedule=schedule, number=2).update(from_at=begun, settled_before=settled)
    Schedule.objects.filter(id=schedule.id).update(settled_count=settled)


@pytest.mark.parametrize("end", ["resume", "cancel"])
@pytest.mark.parametrize("fields", [{}, {"jitter_seconds": 59}, {"max_count": 7}, {"max_count": 300}])
def test_a_pause_is_explained_once_it_is_over_and_nothing_is_due_before(fields: dict[str, Any], end: str) -> None:
    schedule = past_schedule(10.5)
    commands.pause_job(schedule.job_id, note="")
    paused_since(schedule, 5.75)
    # Not before: with fewer it would have none left to be paused.
    Schedule.objects.update(**fields)
    ScheduleVersion.objects.update(**fields)
    while_paused = audit()
    assert (while_paused.clean, while_paused.expected, while_paused.fired) == (True, 4, 4), while_paused.differences

    if end == "resume":
        commands.resume_job(schedule.job_id)
        ScheduleVersion.objects.filter(schedule=schedule, number=2).update(to_at=minutes_ago(0.25))
    else:
        commands.cancel_job(schedule.job_id, by="test")
    found = audit()
    dropped = 3 if fields.get("max_count") == 7 else 6
    assert (found.clean, found.fired, found.dropped) == (True, 4, dropped), found.differences

    DroppedRange.objects.update(count=dropped - 1)
    assert (audit().absent, audit().extra) == (1, 0)
    DroppedRange.objects.update(count=dropped + 1)
    assert (audit().absent, audit().extra) == (0, 1)
    DroppedRange.objects.all().delete()
    assert (audit().absent, audit().dropped) == (dropped, 0)


def test_a_pause_fires_what_is_due_without_waiting_for_its_jitter() -> None:
    schedule = past_schedule(1.5, jitter_seconds=365 * 24 * 3600)
    commands.pause_job(schedule.job_id, note="")
    found = audit()
    assert (found.clean, found.fired) == (True, 1), found.differences


def test_a_cancelled_job_has_nothing_due_afterwards() -> None:
    schedule = past_schedule(10.5)
    commands.cancel_job(schedule.job_id, by="test")
    ScheduleVersion.objects.update(to_at=minutes_ago(5.75))
    Execution.objects.filter(scheduled_for__gt=minutes_ago(5.75)).delete()
    assert audit().clean
    assert audit().expected == 4


@pytest.mark.parametrize("page", [1, 3, 7, 10_000])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batches_and_pages_do_not_matter(page: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "BATCH_SCHEDULES", batch)
    monkeypatch.setattr(auditing, "PAGE_EXECUTIONS", page)
    schedules = [past_schedule(minutes) for minutes in (5.5, 3.5, 0.5, 7.5)]
    fire_all()
    Execution.objects.filter(schedule=schedules[3], scheduled_for=instant_of(schedules[3], 7)).delete()
    found = audit()
    assert (found.schedules, found.executions, found.fired, found.absent) == (4, 14, 14, 1)


def test_one_owner_or_one_job(fired: Schedule) -> None:
    other = past_schedule(3.5)
    fire_all()
    Execution.objects.filter(schedule=fired).delete()
    assert audit(owner_id=other.job.owner_id).clean
    assert audit(owner_id=other.job.owner_id).fired == 3
    assert audit(job_id=other.job_id).schedules == 1
    assert audit(job_id=fired.job_id).absent == 10


def test_examples_are_limited_and_counts_are_not(fired: Schedule) -> None:
    Execution.objects.all().delete()
    found = audit(examples=3)
    assert (len(found.differences), found.absent) == (3, 10)


def test_an_audit_has_bounds(fired: Schedule) -> None:
    with pytest.raises(InvalidInput, match="ends before it begins"):
        audit(from_=minutes_ago(1), to=minutes_ago(2))
    with pytest.raises(InvalidInput, match="too long"):
        audit(within_seconds=0)


def test_percentiles_are_exact_to_a_hundredth() -> None:
    tally = Tally(examples=0)
    for milliseconds in range(1, 10_001):
        tally.add_lateness(timedelta(milliseconds=milliseconds))
    found = tally.audit(minutes_ago(1), minutes_ago(0)).lateness_ms
    assert found is not None
    assert (found.p50, found.p90, found.p99) == pytest.approx((5000, 9000, 9900), rel=0.01)
    assert found.max == 10_000


def test_the_command_exits_with_one_on_a_difference(fired: Schedule) -> None:
    def run(*words: str) -> str:
        out = StringIO()
        call_command("audit_firings", "--from", minutes_ago(100).isoformat(), *words, stdout=out)
        return out.getvalue()

    assert "Clean." in run()
    assert "is pruned" not in run()
    RetentionMark.objects.create(pruned_before=fired.starts_at)
    assert f"pruned_before {fired.starts_at.isoformat().replace('+00:00', 'Z')}" in run()
    assert "What was before is pruned" in run()
    assert json.loads(run("--json", "--job", str(fired.job_id)))["fired"] == 10
    assert json.loads(run("--json", "--job", str(uuid4())))["schedules"] == 0
    Execution.objects.filter(scheduled_for=instant_of(fired, 3)).delete()
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 1
    with pytest.raises(CommandError, match="no UTC offset"):
        run("--to", "2030-01-01T00:00")
    with pytest.raises(CommandError, match="ends before it begins"):
        run("--to", "2020-01-01T00:00Z")


@pytest.mark.django_db(transaction=True)
def test_a_batch_is_read_in_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat that fires and advances between two statements of an audit must not look like a difference."""
    past_schedule(5.5)

    def fire_elsewhere() -> None:
        try:
            fire_all()
        finally:
            connection.close()

    read = auditing._next_batch

    def read_and_let_a_beat_fire(*arguments: Any) -> Any:
        rows = read(*arguments)
        beat = Thread(target=fire_elsewhere)
        beat.start()
        beat.join(timeout=30)
        return rows

    monkeypatch.setattr(auditing, "_next_batch", read_and_let_a_beat_fire)
    found = audit()
    assert (found.executions, found.overdue) == (0, 5), "all of it as it was when the schedules were read"
    assert Execution.objects.count() == 5
    monkeypatch.undo()
    assert audit().clean
