"""Creates, edits and deletes teams, and resolves the team that a job is shared with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count

from jobs.audit.log import record_change
from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import Conflict, InvalidInput, NotFound
from jobs.domain.job_edit import KEEP, Keep
from jobs.models import Job, Membership, Team

UNSHARE_BATCH_JOBS = 500


@dataclass(frozen=True, slots=True)
class _TeamRow:
    id: UUID
    name: str


def create_team(*, name: str, members: Sequence[str]) -> Team:
    """Create a team; `members` are usernames."""
    team = Team(name=name)
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        _save_team(team)
        _set_members(team, _find_users(members))
        record_change("team.created", team, after=_snapshot(team))
    return team


def edit_team(
    team_id: UUID,
    *,
    name: str | Keep = KEEP,
    members: Sequence[str] | Keep = KEEP,
    precondition: Callable[[], None] = lambda: None,
) -> None:
    """Edit a team; `members` replaces the list. Jobs of removed members stay shared until they are edited."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        team = _lock_team(team_id)
        precondition()
        before = _snapshot(team)
        if name is not KEEP:
            team.name = name
        _save_team(team)
        if members is not KEEP:
            _set_members(team, _find_users(members))
        record_change("team.edited", team, before=before, after=_snapshot(team))


def delete_team(team_id: UUID, *, precondition: Callable[[], None] = lambda: None) -> None:
    """Delete a team and stop sharing its jobs.

    The members are removed first, which ends sharing at once; after a crash, the empty team can be deleted again.
    """
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        team = _lock_team(team_id)
        precondition()
        # Without a team, its queues would be open to all users.
        if queues := list(team.queues.order_by("name").values_list("name", flat=True)[:10]):
            raise Conflict(f"The team owns queues ({', '.join(queues)}); assign them to another team or to all first.")
        before, shared = _snapshot(team), Job.objects.filter(team=team).count()
        record_change("team.deleted", team, before=before | ({"jobs": shared} if shared else {}))
        team.memberships.all().delete()
    while _unshare_batch(team):
        pass
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        # After this lock no transaction can share a job with the team; unshare those that did before.
        team = _lock_team(team_id)
        while _unshare_batch(team):
            pass
        team.delete()


def _unshare_batch(team: Team) -> bool:
    """Unshare a batch of jobs, locked briefly in id order as beat and edits do. False: none was left."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        jobs = Job.objects.select_for_update(no_key=True).filter(team=team).order_by("id").values_list("id", flat=True)
        batch = list(jobs[:UNSHARE_BATCH_JOBS])
        Job.objects.filter(id__in=batch).update(team=None)
    return bool(batch)


def find_teams(owner_id: int, names: Iterable[str | None]) -> dict[str, UUID]:
    """Return the named teams that the owner is a member of, locked against deletion until the transaction ends."""
    named = sorted({name for name in names if name is not None})
    if not named:
        return {}
    teams = sql.fetch("find_teams", {"owner_id": owner_id, "names": named}, _TeamRow)
    return {each.name: each.id for each in teams}


def resolve_team(name: str | None, found: Mapping[str, UUID]) -> UUID | None:
    """Return the team's id. The error does not reveal whether the team exists."""
    if name is not None and name not in found:
        raise InvalidInput("team", f"The job's owner is not a member of a team {name!r}; ask staff to be added to it.")
    return None if name is None else found[name]


def _lock_team(team_id: UUID) -> Team:
    """Lock a team, also against transactions that share a job with it."""
    team = Team.objects.select_for_update().filter(id=team_id).first()
    if team is None:
        raise NotFound
    return team


def _save_team(team: Team) -> None:
    try:
        team.full_clean(exclude=["members"], validate_unique=False)
        with transaction.atomic():
            team.save()
    except ValidationError as error:
        raise InvalidInput("name", error.message_dict["name"][0]) from None
    except IntegrityError:
        raise Conflict(f"The team {team.name!r} exists already; choose another name.") from None


def _find_users(names: Sequence[str]) -> list[User]:
    if len(names) > limits.MAX_MEMBERS_PER_TEAM:
        raise InvalidInput("members", f"A team may have at most {limits.MAX_MEMBERS_PER_TEAM} members.")
    users = {user.username: user for user in User.objects.filter(username__in=names)}
    for index, name in enumerate(names):
        if name not in users:
            raise InvalidInput(f"members.{index}", f"There is no user {name!r}.")
    return list(users.values())


def _set_members(team: Team, users: Collection[User]) -> None:
    present = set(team.memberships.values_list("user_id", flat=True))
    wanted = {user.pk: user for user in users}
    team.memberships.filter(user_id__in=present - wanted.keys()).delete()
    joining = [wanted[key] for key in wanted.keys() - present]
    Membership.objects.bulk_create(Membership(team=team, user=user) for user in joining)
    counted = Membership.objects.filter(user__in=joining).values("user__username").annotate(teams=Count("id"))
    if crowded := counted.filter(teams__gt=limits.MAX_TEAMS_PER_USER).order_by("user__username").first():
        raise InvalidInput(
            "members",
            f"{crowded['user__username']} is in {limits.MAX_TEAMS_PER_USER} teams already, which is the limit.",
        )


def _snapshot(team: Team) -> dict[str, object]:
    members = team.memberships.order_by("user__username").values_list("user__username", flat=True)
    return {"name": team.name, "members": list(members)}
