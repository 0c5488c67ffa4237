"""The audit of firings is clean after real firing, for every kind of schedule, and counts correctly."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from io import StringIO
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from jobs.definitions import lifecycle
from jobs.domain.errors import InvalidInput
from jobs.models import DroppedRange, Execution, RetentionMark, Schedule, ScheduleVersion
from jobs.verify import firings
from jobs.verify.report import Tally
from tests.support.factories import make_job
from tests.support.past_schedules import (
    audit,
    differences,
    fire_all,
    instant_of,
    minutes_ago,
    past_schedule,
    paused_since,
)

pytestmark = pytest.mark.django_db


def test_empty_audit_is_clean() -> None:
    found = audit()
    assert (found.clean, found.schedules, found.expected, found.lateness_ms) == (True, 0, 0, None)


def test_fired_instants_are_expected_and_their_lateness_measured() -> None:
    past_schedule(10.5)
    fire_all()
    found = audit()
    assert found.clean
    assert (found.schedules, found.executions, found.expected, found.fired) == (1, 10, 10, 10)
    assert found.lateness_ms is not None
    assert 29_000 < found.lateness_ms.max - 9 * 60_000 < 40_000, "the first instant was nine and a half minutes ago"
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
def test_instants_dropped_by_catch_up_are_explained(policy: str, minutes: float, counted: dict[str, int]) -> None:
    past_schedule(minutes, catch_up=policy)
    fire_all()
    found = audit()
    counts = {name: n for name in ("fired", "missed", "skipped", "dropped") if (n := getattr(found, name))}
    assert (found.clean, counts) == (True, counted)
    assert found.expected == sum(counted.values())


def test_range_inside_a_dropped_range_is_explained() -> None:
    schedule = past_schedule(500.5, catch_up="none")
    fire_all()
    found = audit(from_=instant_of(schedule, 101), to=instant_of(schedule, 310))
    assert (found.clean, found.expected, found.dropped) == (True, 210, 210)


def test_skipped_executions_are_explained() -> None:
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


def test_max_count_ends_the_schedule() -> None:
    schedules = [
        past_schedule(10.5, max_count=4),
        past_schedule(300.5, max_count=3, kind="cron", expression="H * * * *"),
    ]
    fire_all()
    found = audit()
    assert (found.clean, found.expected, found.fired) == (True, 7, 7)
    later = audit(from_=instant_of(schedules[0], 4))
    assert (later.clean, later.fired) == (True, 1), "instants before the range count towards the limit"


def test_end_and_single_instant() -> None:
    past_schedule(10.5, ends_at=minutes_ago(5))
    past_schedule(10.5, kind="at", expression=minutes_ago(3).isoformat())
    fire_all()
    found = audit()
    assert (found.clean, found.fired) == (True, 6)


def test_fixed_delay_is_only_checked_for_early_firings() -> None:
    past_schedule(10.5, kind="delay", job=make_job(overlap="queue"))
    fire_all()
    assert audit().clean
    assert audit().fired == 1
    Execution.objects.update(fired_at=minutes_ago(11))
    assert [what for what, _ in differences(audit())] == ["early"]


@pytest.mark.parametrize("end", ["resume", "cancel"])
@pytest.mark.parametrize("fields", [{}, {"jitter_seconds": 59}, {"max_count": 7}, {"max_count": 300}])
def test_a_pause_is_explained_once_it_is_over_and_nothing_is_due_before(fields: dict[str, Any], end: str) -> None:
    schedule = past_schedule(10.5)
    lifecycle.pause_job(schedule.job_id, note="")
    paused_since(schedule, 5.75)
    # Not earlier: otherwise no instant would be left for the pause.
    Schedule.objects.update(**fields)
    ScheduleVersion.objects.update(**fields)
    while_paused = audit()
    assert (while_paused.clean, while_paused.expected, while_paused.fired) == (True, 4, 4), while_paused.differences

    if end == "resume":
        lifecycle.resume_job(schedule.job_id)
        ScheduleVersion.objects.filter(schedule=schedule, number=2).update(to_at=minutes_ago(0.25))
    else:
        lifecycle.cancel_job(schedule.job_id, by="test")
    found = audit()
    dropped = 3 if fields.get("max_count") == 7 else 6
    assert (found.clean, found.fired, found.dropped) == (True, 4, dropped), found.differences

    DroppedRange.objects.update(count=dropped - 1)
    assert (audit().absent, audit().extra) == (1, 0)
    DroppedRange.objects.update(count=dropped + 1)
    assert (audit().absent, audit().extra) == (0, 1)
    DroppedRange.objects.all().delete()
    assert (audit().absent, audit().dropped) == (dropped, 0)


def test_pause_fires_due_instants_without_their_jitter() -> None:
    schedule = past_schedule(1.5, jitter_seconds=365 * 24 * 3600)
    lifecycle.pause_job(schedule.job_id, note="")
    found = audit()
    assert (found.clean, found.fired) == (True, 1), found.differences


def test_cancelled_job_has_no_due_instants() -> None:
    schedule = past_schedule(10.5)
    lifecycle.cancel_job(schedule.job_id, by="test")
    ScheduleVersion.objects.update(to_at=minutes_ago(5.75))
    Execution.objects.filter(scheduled_for__gt=minutes_ago(5.75)).delete()
    assert audit().clean
    assert audit().expected == 4


@pytest.mark.parametrize("page", [1, 3, 7, 10_000])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_result_is_independent_of_batches_and_pages(page: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firings, "BATCH_SCHEDULES", batch)
    monkeypatch.setattr(firings, "PAGE_EXECUTIONS", page)
    schedules = [past_schedule(minutes) for minutes in (5.5, 3.5, 0.5, 7.5)]
    fire_all()
    Execution.objects.filter(schedule=schedules[3], scheduled_for=instant_of(schedules[3], 7)).delete()
    found = audit()
    assert (found.schedules, found.executions, found.fired, found.absent) == (4, 14, 14, 1)


def test_audit_of_one_owner_or_one_job(fired: Schedule) -> None:
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


def test_audit_has_bounds(fired: Schedule) -> None:
    with pytest.raises(InvalidInput, match="ends before it begins"):
        audit(from_=minutes_ago(1), to=minutes_ago(2))
    with pytest.raises(InvalidInput, match="too long"):
        audit(within_seconds=0)


@pytest.mark.parametrize("paused", [False, True])
def test_time_limit_holds_within_one_large_schedule(paused: bool) -> None:
    schedule = past_schedule(60 * 24 * 365 * 4, kind="cron", expression="* * * * *", catch_up="latest")
    ScheduleVersion.objects.update(paused=paused, to_at=minutes_ago(1) if paused else None)
    started = time.monotonic()
    with pytest.raises(InvalidInput, match="too long"):
        audit(from_=schedule.starts_at, within_seconds=0.5)
    assert time.monotonic() - started < 10, "four years of minutes take longer than a minute"


def test_percentiles_are_exact_to_one_percent() -> None:
    tally = Tally(examples=0)
    for milliseconds in range(1, 10_001):
        tally.add_lateness(timedelta(milliseconds=milliseconds))
    found = tally.audit(minutes_ago(1), minutes_ago(0)).lateness_ms
    assert found is not None
    assert (found.p50, found.p90, found.p99) == pytest.approx((5000, 9000, 9900), rel=0.01)
    assert found.max == 10_000


def test_command_exits_with_1_on_a_difference(fired: Schedule) -> None:
    def run(*words: str) -> str:
        out = StringIO()
        call_command("audit_firings", "--from", minutes_ago(100).isoformat(), *words, stdout=out)
        return out.getvalue()

    assert "Clean." in run()
    assert "is pruned" not in run()
    RetentionMark.objects.create(pruned_before=fired.starts_at)
    assert f"pruned_before {fired.starts_at.isoformat().replace('+00:00', 'Z')}" in run()
    assert "Earlier history is pruned" in run()
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
    """A beat that fires between two statements of an audit must not cause a difference."""
    past_schedule(5.5)

    def fire_elsewhere() -> None:
        try:
            fire_all()
        finally:
            connection.close()

    read = firings._read_batch

    def read_then_fire(*arguments: Any) -> Any:
        rows = read(*arguments)
        beat = Thread(target=fire_elsewhere)
        beat.start()
        beat.join(timeout=30)
        return rows

    monkeypatch.setattr(firings, "_read_batch", read_then_fire)
    found = audit()
    assert (found.executions, found.overdue) == (0, 5), "everything as of the moment when the schedules were read"
    assert Execution.objects.count() == 5
    monkeypatch.undo()
    assert audit().clean
