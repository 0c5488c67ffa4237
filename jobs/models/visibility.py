"""Tenancy: one visibility rule for every table; invisible rows do not exist for the reader.

Jobs and their executions are visible to their owner and team, everything else to its owner, and all rows to staff. A
member of the team may do with a job what no view guards by `require_owner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Model, Q, QuerySet

from jobs.domain.errors import OwnersOnly
from jobs.models.job import Job
from jobs.models.team import Membership, Team

Row = TypeVar("Row", bound=Model)


def is_operator(user: User | AnonymousUser) -> bool:
    """Return whether the user operates the installation, in the API and the admin: active staff."""
    return user.is_active and user.is_staff


def visible_to(user: User, rows: QuerySet[Row], *, owner: str = "owner") -> QuerySet[Row]:
    """Filter rows to those of the user, whom the path `owner` leads to; staff see everything."""
    return rows if is_operator(user) else rows.filter(**{owner: user})


def shared_with(
    user: User, rows: QuerySet[Row], *, job: str = "", teams: Sequence[UUID] | None = None
) -> QuerySet[Row]:
    """Filter jobs, or rows with a path `job` to one, to the user's own and those of their teams.

    Pass `teams` to avoid reading them again within a request.
    """
    if is_operator(user):
        return rows
    path = f"{job}__" if job else ""
    own, teams = Q(**{f"{path}owner": user}), read_team_ids(user) if teams is None else teams
    return rows.filter(own | Q(**{f"{path}team__in": teams}) if teams else own)


def require_owner(user: User, job: Job) -> None:
    """Require the owner or staff: editing a job gives access to the secrets that its owner granted it."""
    if not is_operator(user) and job.owner_id != user.pk:
        raise OwnersOnly


def read_team_ids(user: User) -> list[UUID]:
    """Read the user's teams, with a separate query: as a subquery they would keep Postgres from using indexes."""
    return list(Membership.objects.filter(user=user).order_by("team_id").values_list("team_id", flat=True))


# Ids for unknown names: the list is queried all the same, so that its timing does not reveal which names exist.
NO_USER, NO_TEAM = 0, UUID(int=0)


def find_user_id(name: str) -> int:
    found: int | None = User.objects.filter(username=name).values_list("pk", flat=True).first()
    return NO_USER if found is None else found


def find_team_id(name: str) -> UUID:
    found: UUID | None = Team.objects.filter(name=name).values_list("pk", flat=True).first()
    return NO_TEAM if found is None else found


def visibility_key(user: User) -> str:
    """Return a cache key that is equal for users who see the same rows."""
    return "staff" if is_operator(user) else str(user.pk)
