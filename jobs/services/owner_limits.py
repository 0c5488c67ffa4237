"""How many jobs an owner may have, and how many executions at once.

What there is is counted, never counted up and down. Whoever adds to it holds a lock from before it is counted until the
addition is committed, so that two cannot both slip under a limit; without a limit nothing is locked or counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Model

from jobs import sql, wakeups
from jobs.errors import Conflict, JobQuotaExceeded
from jobs.models import Execution, Job, OwnerQuota
from jobs.states import ACTIVE, values

# One for all owners and pools: an owner's executions may be placed in several.
LIMITED_PLACEMENT = "punctual.place.limited_owners"


@dataclass(frozen=True, slots=True)
class Use:
    used: int
    quota: int  # 0: without limit


@dataclass(frozen=True, slots=True)
class LimitedOwner:
    """An owner who has a limit, and something active."""

    owner_id: int
    active: int
    most: int

    @property
    def is_full(self) -> bool:
        return self.active >= self.most


def read_limited() -> dict[int, LimitedOwner]:
    parameters = {"default_executions": settings.PUNCTUAL_OWNER_CONCURRENCY}
    return {owner.owner_id: owner for owner in sql.fetch("limited_owners", parameters, LimitedOwner)}


def lock_limited() -> Mapping[int, LimitedOwner] | None:
    """What stays so until the transaction ends, but for what ends, and what this transaction places.

    None: somebody else is placing for such owners.
    """
    with connection.cursor() as cursor:
        # A statement of its own: one that also read would read what was there before it had the lock.
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [LIMITED_PLACEMENT])
        ours = bool(cursor.fetchone()[0])
    return read_limited() if ours else None


def check_room_for_another(owner: User, kind: type[Model], most: int) -> None:
    """Of what is kept in the database itself, in the transaction that stores it."""
    # Two that are made at once must not both find room for the last.
    list(User.objects.select_for_update(no_key=True).filter(id=owner.pk).values_list("id"))
    if kind._default_manager.filter(owner=owner).count() >= most:
        raise Conflict(f"You have {most} {kind._meta.verbose_name_plural}, and no more may be; delete one first.")


def check_room_for_jobs(owner_id: int, count: int) -> None:
    """Before they are stored, in the transaction that stores them; taken in one order with its other locks."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT limits.most, pg_advisory_xact_lock(hashtextextended('punctual.jobs.' || %(owner)s, 0))"
            "  FROM (SELECT COALESCE((SELECT jobs FROM jobs_ownerquota WHERE owner_id = %(owner)s), %(default)s))"
            "       AS limits (most) WHERE limits.most <> 0",
            {"owner": owner_id, "default": settings.PUNCTUAL_OWNER_JOBS},
        )
        row = cursor.fetchone()
    if row is None:
        return
    most: int = row[0]
    # No further than anybody asks: job_live_by_owner.
    there = Job.objects.filter(owner_id=owner_id, deleted_at=None).values("id")[: most + 1].count()
    if there + count > most:
        raise JobQuotaExceeded(
            f"You may have {most} jobs and have {'more' if there > most else there}, and this would add {count};"
            " delete jobs that you no longer need, or ask for a larger quota."
        )


def execution_quota(owner_id: int) -> int:
    own = OwnerQuota.objects.filter(owner_id=owner_id).values_list("concurrent_executions", flat=True).first()
    most: int = settings.PUNCTUAL_OWNER_CONCURRENCY if own is None else own
    return most


def read_uses(owner_id: int) -> tuple[Use, Use]:
    """Of jobs and of executions at once."""
    own = OwnerQuota.objects.filter(owner_id=owner_id).values_list("jobs", flat=True).first()
    live = Job.objects.filter(owner_id=owner_id, deleted_at=None).count()
    active = Execution.objects.filter(state__in=values(ACTIVE), job__owner_id=owner_id).count()
    return (
        Use(live, settings.PUNCTUAL_OWNER_JOBS if own is None else own),
        Use(active, execution_quota(owner_id)),
    )


def quotas_changed() -> None:
    """To be called in the transaction that changes them: what waited for more room is looked at now."""
    transaction.on_commit(wakeups.wake_beat)
