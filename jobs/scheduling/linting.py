"""Warnings about schedules that were just saved; nothing is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from statistics import median
from uuid import UUID

from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.ttl_cache import TTLCache
from jobs.domain.choices import Overlap
from jobs.domain.recurrence import LATEST, Kind, Recurrence, instants_between, lint_recurrence
from jobs.domain.states import State
from jobs.models import Execution, Job, JobVersion, Schedule
from jobs.scheduling.schedules import recurrence_of

# More schedules than this in one second get a warning; counting stops at the second limit.
HERD_SCHEDULES = 100
MAX_COUNTED_SCHEDULES = 10_000
EXACTLY_COUNTED_SCHEDULES = 500
LARGE_HERD_TTL_SECONDS = 1.0
# The runtime is the median of this many last runs, found among at most this many executions.
SAMPLED_RUNS = 20
MAX_EXAMINED_EXECUTIONS = 500
# Gaps between instants differ: the shortest of this many counts.
SAMPLED_GAPS = 10
_large_herds: TTLCache[datetime, int] = TTLCache()
_RAN_STATES = (State.SUCCEEDED, State.FAILED, State.TIMED_OUT)


def lint_schedules(job: Job, schedules: Sequence[Schedule]) -> list[str]:
    """Return distinct warnings, one sentence each, in the order of the job's schedules."""
    rows = [schedule for schedule in schedules if schedule.quarantined_at is None]
    runtime = _estimate_runtime(job.id) if rows else None
    return _lint(rows, database_now(), runtime, job.current_version)


def lint_new_schedules(rows: Sequence[Schedule], now: datetime) -> list[str]:
    """Return the warnings for a job that has not run yet."""
    return _lint(rows, now, None, None)


def _lint(rows: Sequence[Schedule], now: datetime, runtime: timedelta | None, version: JobVersion | None) -> list[str]:
    warnings: list[str] = []
    for schedule in rows:
        recurrence = recurrence_of(schedule)
        warnings += lint_recurrence(recurrence, now)
        if runtime is not None and version is not None:
            warnings += _warn_about_slow_runs(recurrence, now, runtime, version)
        if schedule.next_fire_at is not None:
            warnings += _warn_about_herd(schedule.next_fire_at)
    return list(dict.fromkeys(warnings))


def _warn_about_herd(fires_at: datetime) -> list[str]:
    second = fires_at.replace(microsecond=0)
    count = _count_herd(second)
    if count <= HERD_SCHEDULES:
        return []
    shown = f"more than {MAX_COUNTED_SCHEDULES:,}" if count > MAX_COUNTED_SCHEDULES else f"{count:,}"
    return [
        f"It is one of {shown} schedules that fire in the same second, {second:%Y-%m-%dT%H:%M:%SZ};"
        " jitter_seconds or an H in its cron fields would spread them."
    ]


def _count_herd(second: datetime) -> int:
    """Count the schedules in this second; those of a large herd at most once a second, since that reads all of them."""
    count = _count_up_to(EXACTLY_COUNTED_SCHEDULES, second)
    if count < EXACTLY_COUNTED_SCHEDULES:
        return count
    count_all = partial(_count_up_to, MAX_COUNTED_SCHEDULES + 1, second)
    return _large_herds.get(second, count_all, seconds=LARGE_HERD_TTL_SECONDS)


def _count_up_to(limit: int, second: datetime) -> int:
    (count,) = sql.fetch("count_herd", {"second": second, "limit": limit}, int)
    return count


def _estimate_runtime(job_id: UUID) -> timedelta | None:
    """Return the median runtime of the last runs, or None if none has finished."""
    last = Execution.objects.filter(job_id=job_id).order_by("-id").values_list("state", "started_at", "ended_at")
    ended = (
        (ended_at - started_at).total_seconds()
        for state, started_at, ended_at in last[:MAX_EXAMINED_EXECUTIONS]
        if state in _RAN_STATES and started_at is not None and ended_at is not None
    )
    seconds = list(islice(ended, SAMPLED_RUNS))
    return timedelta(seconds=median(seconds)) if seconds else None


def _warn_about_slow_runs(recurrence: Recurrence, now: datetime, runtime: timedelta, version: JobVersion) -> list[str]:
    if recurrence.kind in (Kind.AT, Kind.DELAY):
        return []  # an instant has no interval, and a delay waits for its runs
    sample = islice(instants_between(recurrence, now, LATEST), SAMPLED_GAPS + 1)
    gap = min((later - earlier for earlier, later in pairwise(sample)), default=None)
    if gap is None or runtime <= gap:
        return []
    return [
        f"A run takes {_format(runtime)}, longer than the {_format(gap)} between two instants:"
        f" {_describe_consequence(runtime, gap, version)}."
    ]


def _describe_consequence(runtime: timedelta, gap: timedelta, version: JobVersion) -> str:
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


def _format(length: timedelta) -> str:
    seconds = round(length.total_seconds(), 1)
    return f"{seconds:,.1f}".removesuffix(".0") + " s"
