"""Quotas of an owner's jobs, concurrent executions, backlog, dependents and stored objects.

Usage is counted from rows, never kept in a counter. Adding to it takes a lock before counting and holds it until the
commit, so two transactions cannot both slip under a limit. Without a limit nothing is locked or counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Model

from jobs.access.owner_backlog import check_owner_backlog
from jobs.db import sql, wakeups
from jobs.domain.errors import BacklogFull, Conflict, InvalidInput, JobQuotaExceeded
from jobs.domain.states import HELD
from jobs.models import Execution, Job, OwnerQuota, Trigger

# One lock for all owners and pools: an owner's executions may be placed in several pools.
LIMITED_PLACEMENT_LOCK = "punctual.place.limited_owners"


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    used: int
    quota: int  # 0: unlimited


@dataclass(frozen=True, slots=True)
class LimitedOwner:
    """An owner with a limit and with active executions."""

    owner_id: int
    active: int
    limit: int

    @property
    def is_full(self) -> bool:
        return self.active >= self.limit


@dataclass(frozen=True, slots=True)
class _JobLimits:
    jobs: int
    backlog: int
    lock: str | None


def read_limited_owners() -> dict[int, LimitedOwner]:
    parameters = {"default_executions": settings.PUNCTUAL_OWNER_CONCURRENCY}
    return {owner.owner_id: owner for owner in sql.fetch("read_limited_owners", parameters, LimitedOwner)}


def lock_limited_owners() -> Mapping[int, LimitedOwner] | None:
    """Lock placement for limited owners until the transaction ends. None: another transaction has the lock."""
    with connection.cursor() as cursor:
        # Two statements: one that also read would read with its snapshot from before it had the lock.
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [LIMITED_PLACEMENT_LOCK])
        locked = bool(cursor.fetchone()[0])
    return read_limited_owners() if locked else None


def check_object_quota(owner: User, kind: type[Model], limit: int) -> None:
    """Raise Conflict at the limit of database objects, in the transaction that stores one more."""
    # Lock the owner: two concurrent requests must not both create the last one.
    list(User.objects.select_for_update(no_key=True).filter(id=owner.pk).values_list("id"))
    if kind._default_manager.filter(owner=owner).count() >= limit:
        raise Conflict(f"You have {limit} {kind._meta.verbose_name_plural}, which is the limit; delete one first.")


def check_job_quota(owner_id: int, count: int, *, started: int = 0) -> None:
    """Raise JobQuotaExceeded if `count` more jobs exceed the quota, in the transaction that stores them.

    `started`: how many of them get an execution at once, for the owner's backlog.
    """
    defaults = {"jobs": settings.PUNCTUAL_OWNER_JOBS, "backlog": settings.PUNCTUAL_OWNER_BACKLOG}
    (limits,) = sql.fetch("lock_job_quota", {"owner_id": owner_id, **defaults}, _JobLimits)
    limit = limits.jobs
    check_owner_backlog(owner_id, started, limits.backlog)
    if not limit:
        return
    # Counted only up to the limit. Index: job_live_by_owner.
    present = Job.objects.filter(owner_id=owner_id, deleted_at=None).values("id")[: limit + 1].count()
    if present + count > limit:
        raise JobQuotaExceeded(
            f"You may have {limit} jobs and have {'more' if present > limit else present}, and this would add {count};"
            " delete jobs that you no longer need, or ask for a larger quota."
        )


def check_backlog(job: Job) -> None:
    """Raise BacklogFull before an execution is started manually; the caller holds the job's lock."""
    own = OwnerQuota.objects.filter(owner_id=job.owner_id).values_list("job_backlog", "backlog").first()
    limits = zip(own or (None, None), (settings.PUNCTUAL_JOB_BACKLOG, settings.PUNCTUAL_OWNER_BACKLOG), strict=True)
    job_limit, owner_limit = (default if given is None else given for given, default in limits)
    unfinished = Execution.objects.filter(job=job, trigger=Trigger.MANUAL, ended_at__isnull=True)
    # Counted only up to the limit. Index: execution_unfinished_of_job.
    if job_limit and unfinished.values("id")[:job_limit].count() == job_limit:
        raise BacklogFull(
            f"{job_limit} manually started executions of the job are unfinished, which is the limit; wait until some"
            " have ended, cancel some, or ask for a larger quota."
        )
    check_owner_backlog(job.owner_id, 1, owner_limit)


def check_dependents(owner_id: int, upstream_ids: Collection[UUID]) -> None:
    """Raise InvalidInput if one of these jobs has too many dependents, after their edges were stored.

    Concurrent submissions may exceed the limit by what one of them adds.
    """
    limit = read_limit(owner_id, "job_dependents", settings.PUNCTUAL_JOB_DEPENDENTS) if upstream_ids else 0
    if not limit:
        return
    with connection.cursor() as cursor:
        cursor.execute(sql.statement("find_crowded_upstream"), {"ids": list(upstream_ids), "limit": limit})
        row = cursor.fetchone()
    if row is not None:
        raise InvalidInput(
            "dependencies",
            f"At most {limit} jobs may run after one, and {row[0]!r} has that many; let some run after another job in"
            " between, or ask for a larger quota.",
        )


def read_execution_quota(owner_id: int) -> int:
    return read_limit(owner_id, "concurrent_executions", settings.PUNCTUAL_OWNER_CONCURRENCY)


def read_limit(owner_id: int, field: str, default: int) -> int:
    """Return the owner's own limit, or else the default; 0: unlimited."""
    own: int | None = OwnerQuota.objects.filter(owner_id=owner_id).values_list(field, flat=True).first()
    return default if own is None else own


def read_quota_usages(owner_id: int) -> tuple[QuotaUsage, QuotaUsage]:
    """Return the usage of the job quota and of the concurrency quota."""
    live = Job.objects.filter(owner_id=owner_id, deleted_at=None).count()
    active = Execution.objects.filter(phase=HELD, job__owner_id=owner_id).count()
    return (
        QuotaUsage(live, read_limit(owner_id, "jobs", settings.PUNCTUAL_OWNER_JOBS)),
        QuotaUsage(active, read_execution_quota(owner_id)),
    )


def on_quotas_changed() -> None:
    """Wake beat up after the commit of the transaction that changes quotas: parked executions may fit now."""
    transaction.on_commit(wakeups.wake_beat)
