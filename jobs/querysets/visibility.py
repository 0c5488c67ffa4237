"""Tenancy: one rule for every table. What is not visible does not exist for its reader.

Jobs, and what belongs to them, are their owner's and the team's that they are shared with; all else is its owner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from django.apps import apps
from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet

Row = TypeVar("Row", bound=Model)


def visible_to(user: User, rows: QuerySet[Row], *, owner: str = "owner") -> QuerySet[Row]:
    """`owner` is the path from a row to the user that it belongs to; staff sees everything."""
    return rows if user.is_staff else rows.filter(**{owner: user})


def shared_with(
    user: User, rows: QuerySet[Row], *, job: str = "", teams: Sequence[UUID] | None = None
) -> QuerySet[Row]:
    """Jobs, or rows from which the path `job` leads to one: the user's own, and those of their teams.

    `teams` are for who asks several times in one request, and has asked for them before.
    """
    if user.is_staff:
        return rows
    path = f"{job}__" if job else ""
    theirs, teams = Q(**{f"{path}owner": user}), teams_of(user) if teams is None else teams
    return rows.filter(theirs | Q(**{f"{path}team__in": teams}) if teams else theirs)


def teams_of(user: User) -> list[UUID]:
    """Asked beforehand, and in each request: as part of a question it would keep Postgres from any index."""
    rows = apps.get_model("jobs", "Membership").objects.filter(user=user)
    return list(rows.order_by("team_id").values_list("team_id", flat=True))


# What a list is asked for by a name that nobody has: it is looked for all the same, as what one may not see is.
NO_USER, NO_TEAM = 0, UUID(int=0)


def id_of_user(name: str) -> int:
    found: int | None = User.objects.filter(username=name).values_list("pk", flat=True).first()
    return NO_USER if found is None else found


def id_of_team(name: str) -> UUID:
    found: UUID | None = apps.get_model("jobs", "Team").objects.filter(name=name).values_list("pk", flat=True).first()
    return NO_TEAM if found is None else found


def viewpoint(user: User) -> str:
    """Whoever has the same one sees the same rows: what one of them was shown a moment ago may be shown to another."""
    return "staff" if user.is_staff else str(user.pk)
