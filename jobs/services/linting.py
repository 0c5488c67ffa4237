"""What a person should know about the schedules that they just saved; nothing is refused here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from statistics import median
from uuid import UUID

from jobs.models import Execution, Job, JobVersion, Overlap, Schedule
from jobs.recurrence import Kind, Recurrence, lint
from jobs.services.schedules import database_now, recurrence_of
from jobs.states import State

# So many schedules in one second are a herd; and no more than this are counted, in an answer to a request.
HERD = 100
MOST_COUNTED = 10_000
# What a run usually takes is said by the last ones; and no more of the history than this is looked through for them.
RUNS = 20
MOST_LOOKED_AT = 500
# Gaps between instants differ: the shortest of so many.
GAPS = 10
_SECOND = timedelta(seconds=1)
_RAN = (State.SUCCEEDED, State.FAILED, State.TIMED_OUT)


def lint_schedules(job: Job, schedules: Sequence[Schedule]) -> list[str]:
    """Warnings, each one sentence and each once, in the order of the job's schedules."""
    rows = [schedule for schedule in schedules if schedule.quarantined_at is None]
    runtime = _runtime(job.id) if rows else None
    return _lint(rows, database_now(), runtime, job.current_version)


def lint_new(rows: Sequence[Schedule], now: datetime) -> list[str]:
    """The same of a job that has not run yet."""
    return _lint(rows, now, None, None)


def _lint(rows: Sequence[Schedule], now: datetime, runtime: timedelta | None, version: JobVersion | None) -> list[str]:
    found: list[str] = []
    for schedule in rows:
        recurrence = recurrence_of(schedule)
        found += lint(recurrence, now)
        if runtime is not None and version is not None:
            found += _too_slow(recurrence, now, runtime, version)
        if schedule.next_fire_at is not None:
            found += _herd(schedule.next_fire_at)
    return list(dict.fromkeys(found))


def _herd(fires_at: datetime) -> list[str]:
    second = fires_at.replace(microsecond=0)
    sharing = Schedule.objects.filter(next_fire_at__gte=second, next_fire_at__lt=second + _SECOND)
    count = sharing.order_by("next_fire_at")[: MOST_COUNTED + 1].count()
    if count <= HERD:
        return []
    many = f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else f"{count:,}"
    return [
        f"With it {many} schedules fire in the same second, {second:%Y-%m-%dT%H:%M:%SZ};"
        " jitter_seconds or an H in its cron fields would spread them."
    ]


def _runtime(job_id: UUID) -> timedelta | None:
    """What a run usually takes; None: none has ended yet. A timeout says nothing about it."""
    last = Execution.objects.filter(job_id=job_id).order_by("-id").values_list("state", "started_at", "ended_at")
    ended = (
        (ended_at - started_at).total_seconds()
        for state, started_at, ended_at in last[:MOST_LOOKED_AT]
        if state in _RAN and started_at is not None and ended_at is not None
    )
    seconds = list(islice(ended, RUNS))
    return timedelta(seconds=median(seconds)) if seconds else None


def _too_slow(recurrence: Recurrence, now: datetime, runtime: timedelta, version: JobVersion) -> list[str]:
    if recurrence.kind in (Kind.AT, Kind.DELAY):
        return []  # one has no interval, the other waits for its runs
    gap = min(
        (later - earlier for earlier, later in pairwise(islice(_instants(recurrence, now), GAPS + 1))), default=None
    )
    if gap is None or runtime <= gap:
        return []
    return [
        f"A run of it takes {_shown(runtime)}, longer than the {_shown(gap)} between two of its instants:"
        f" {_outcome(runtime, gap, version)}."
    ]


def _instants(recurrence: Recurrence, now: datetime) -> Iterator[datetime]:
    instant = recurrence.next_after(now)
    while instant is not None:
        yield instant
        instant = recurrence.next_after(instant)


def _outcome(runtime: timedelta, gap: timedelta, version: JobVersion) -> str:
    limit = version.max_concurrency
    if limit is None or runtime <= gap * limit:
        return "its runs overlap"
    match Overlap(version.overlap):
        case Overlap.QUEUE:
            return "more and more of them wait"
        case Overlap.SKIP:
            return "some of them are skipped"
        case Overlap.CANCEL_RUNNING:
            return "they are cancelled by those that follow"


def _shown(length: timedelta) -> str:
    seconds = round(length.total_seconds(), 1)
    return f"{seconds:,.1f}".removesuffix(".0") + " s"
