"""Teams: made, filled and dissolved by staff; and which of them a job may be shared with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count

from jobs import conf, sql
from jobs.errors import Conflict, InvalidInput, NotFound
from jobs.models import Job, Membership, Team
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.services.job_edit import KEEP, Keep

UNSHARED_TOGETHER = 500


@dataclass(frozen=True, slots=True)
class _Found:
    id: UUID
    name: str


def create_team(*, name: str, members: Sequence[str]) -> Team:
    """`members` are names of users."""
    team = Team(name=name)
    with transaction.atomic(), bounded(statement_seconds=10):
        _save(team)
        _set_members(team, _find_users(members))
        record("team.created", team, after=_told(team))
    return team


def edit_team(
    team_id: UUID,
    *,
    name: str | Keep = KEEP,
    members: Sequence[str] | Keep = KEEP,
    when_locked: Callable[[], None] = lambda: None,
) -> None:
    """`members` is the whole list. Who leaves keeps their jobs; those stay shared until they are edited."""
    with transaction.atomic(), bounded(statement_seconds=10):
        team = _locked(team_id)
        when_locked()
        before = _told(team)
        if name is not KEEP:
            team.name = name
        _save(team)
        if members is not KEEP:
            _set_members(team, _find_users(members))
        record("team.edited", team, before=before, after=_told(team))


def delete_team(team_id: UUID, *, when_locked: Callable[[], None] = lambda: None) -> None:
    """Its jobs are their owners' alone again: at once, as it has no members any more, however many they are.

    Interrupted, it leaves a team without members, which may be deleted again.
    """
    with transaction.atomic(), bounded(statement_seconds=10):
        team = _locked(team_id)
        when_locked()
        before, shared = _told(team), Job.objects.filter(team=team).count()
        record("team.deleted", team, before=before | ({"jobs": shared} if shared else {}))
        team.memberships.all().delete()
    while _unshare_some(team):
        pass
    with transaction.atomic(), bounded(statement_seconds=10):
        # Who was about to share a job with it has done so by now, and nobody else can.
        team = _locked(team_id)
        while _unshare_some(team):
            pass
        team.delete()


def _unshare_some(team: Team) -> bool:
    """Whether there were any. A few at a time: beats and editors want them, in the order in which they are taken."""
    with transaction.atomic(), bounded(statement_seconds=10):
        jobs = Job.objects.select_for_update(no_key=True).filter(team=team).order_by("id").values_list("id", flat=True)
        some = list(jobs[:UNSHARED_TOGETHER])
        Job.objects.filter(id__in=some).update(team=None)
    return bool(some)


def find_teams(owner_id: int, names: Iterable[str | None]) -> dict[str, UUID]:
    """Those of the names that are teams of which the owner is a member; in a transaction they stay until its end."""
    wanted = sorted({name for name in names if name is not None})
    if not wanted:
        return {}
    found = sql.fetch("find_teams", {"owner_id": owner_id, "names": wanted}, _Found)
    return {each.name: each.id for each in found}


def pick_team(name: str | None, found: Mapping[str, UUID]) -> UUID | None:
    """Refused in the same words whether or not there is such a team: that is not everybody's business."""
    if name is not None and name not in found:
        raise InvalidInput("team", f"The job's owner is not a member of a team {name!r}; ask staff to be added to it.")
    return None if name is None else found[name]


def _locked(team_id: UUID) -> Team:
    """Also from those who are sharing a job with it: what they store is seen, or they see what is done here."""
    team = Team.objects.select_for_update().filter(id=team_id).first()
    if team is None:
        raise NotFound
    return team


def _save(team: Team) -> None:
    try:
        team.full_clean(exclude=["members"], validate_unique=False)
        with transaction.atomic():
            team.save()
    except ValidationError as error:
        raise InvalidInput("name", error.message_dict["name"][0]) from None
    except IntegrityError:
        raise Conflict(f"There is a team {team.name!r} already; choose another name.") from None


def _find_users(names: Sequence[str]) -> list[User]:
    if len(names) > conf.MAX_MEMBERS_PER_TEAM:
        raise InvalidInput("members", f"A team may have at most {conf.MAX_MEMBERS_PER_TEAM} members.")
    found = {user.username: user for user in User.objects.filter(username__in=names)}
    for index, name in enumerate(names):
        if name not in found:
            raise InvalidInput(f"members.{index}", f"There is no user {name!r}.")
    return list(found.values())


def _set_members(team: Team, users: Collection[User]) -> None:
    present = set(team.memberships.values_list("user_id", flat=True))
    wanted = {user.pk: user for user in users}
    team.memberships.filter(user_id__in=present - wanted.keys()).delete()
    joining = [wanted[key] for key in wanted.keys() - present]
    Membership.objects.bulk_create(Membership(team=team, user=user) for user in joining)
    counted = Membership.objects.filter(user__in=joining).values("user__username").annotate(teams=Count("id"))
    if crowded := counted.filter(teams__gt=conf.MAX_TEAMS_PER_USER).order_by("user__username").first():
        raise InvalidInput(
            "members",
            f"{crowded['user__username']} is in {conf.MAX_TEAMS_PER_USER} teams already, and may be in no more.",
        )


def _told(team: Team) -> dict[str, object]:
    members = team.memberships.order_by("user__username").values_list("user__username", flat=True)
    return {"name": team.name, "members": list(members)}
