"""Checks that the queues, teams, secrets and jobs that a file names exist, before anything is sent.

Only changed fields are checked: a job may keep a value such as a team that its owner has left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from punctual_cli.argument_parsing import is_uuid
from punctual_client.errors import PROGRAM, ApiError

if TYPE_CHECKING:
    from punctual_cli.apply.planning import JobStep
    from punctual_cli.apply.yaml_reading import YamlValue
    from punctual_client.client import Client

# A truncated list would make existing names look missing.
NO_LIMIT = sys.maxsize


def check_references(client: Client, owner: str, steps: Sequence[JobStep]) -> None:
    """Refuse the first name that does not exist, with its line; each kind is listed at most once."""
    listed: dict[str, Callable[[], set[str]]] = {
        "queue": lambda: {each.name for each in client.queues(limit=NO_LIMIT)},
        "team": lambda: {each.name for each in client.teams(limit=NO_LIMIT) if owner in each.members},
        "secrets": lambda: own_secret_names(client, owner),
    }
    for kind, list_names in listed.items():
        places = [place for step in steps if step.changes_field(kind) for place in _list_references(step, kind)]
        known = list_names() if places else set()
        for place in places:
            if place.text() not in known:
                raise place.refusal(_missing_message(kind, place.text()))
    _check_job_ids(client, owner, [step for step in steps if step.changes_field("dependencies")])


def own_secret_names(client: Client, owner: str) -> set[str]:
    """List the owner's secrets; staff also see those of others, which their jobs cannot use."""
    return {each.name for each in client.secrets(limit=NO_LIMIT) if each.owner == owner}


def _list_references(step: JobStep, kind: str) -> Iterator[YamlValue]:
    place = step.job.place.parts().get(kind)
    if place is None or place.value is None:
        return
    if kind == "secrets":
        yield from (each.parts()["name"] for each in place.entries())
    else:
        yield place


def _missing_message(kind: str, name: str) -> str:
    if kind == "queue":
        return f"There is no queue {name!r}: {PROGRAM} queues lists them."
    if kind == "team":
        return f"You are not a member of a team {name!r}: {PROGRAM} teams lists yours."
    return f"You have no secret {name!r}: {PROGRAM} secrets set {name} makes it."


def _check_job_ids(client: Client, owner: str, steps: Sequence[JobStep]) -> None:
    checked: dict[str, bool] = {}
    for step in steps:
        for after in step.job.dependencies:
            if not is_uuid(after.job):
                continue
            if after.job not in checked:
                checked[after.job] = _is_own_job(client, owner, after.job)
            if not checked[after.job]:
                raise step.job.place.parts()["dependencies"].refusal(f"You have no job {after.job}.")


def _is_own_job(client: Client, owner: str, job_id: str) -> bool:
    try:
        return client.job(job_id).raw.get("owner", owner) == owner
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
