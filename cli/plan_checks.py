"""Whether the server has what a file names: asked before anything is sent, so that no file is applied by half.

Only what would be sent is looked for: a job may keep what it has, such as a team that its owner has left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from cli.errors import ClientError
from cli.values import is_id

if TYPE_CHECKING:
    from cli.client import Client
    from cli.planning import JobStep
    from cli.yaml_reading import Place

# A list that is cut short would refuse what is there.
ALL = sys.maxsize


def check_references(client: Client, owner: str, steps: Sequence[JobStep]) -> None:
    """One list for each kind that is named at all; the first name that is not in it is refused, with its line."""
    listed: dict[str, Callable[[], set[str]]] = {
        "queue": lambda: {each.name for each in client.queues(limit=ALL)},
        "team": lambda: {each.name for each in client.teams(limit=ALL) if owner in each.members},
        "secrets": lambda: own_secrets(client, owner),
    }
    for kind, list_names in listed.items():
        places = [place for step in steps if step.changes_field(kind) for place in _named(step, kind)]
        known = list_names() if places else set()
        for place in places:
            if place.text() not in known:
                raise place.refusal(_missing(kind, place.text()))
    _check_ids_of_jobs(client, owner, [step for step in steps if step.changes_field("dependencies")])


def own_secrets(client: Client, owner: str) -> set[str]:
    """Staff is shown those of others, too, which no job of theirs can be given."""
    return {each.name for each in client.secrets(limit=ALL) if each.owner == owner}


def _named(step: JobStep, kind: str) -> Iterator[Place]:
    place = step.job.place.parts().get(kind)
    if place is None or place.value is None:
        return
    if kind == "secrets":
        yield from (each.parts()["name"] for each in place.entries())
    else:
        yield place


def _missing(kind: str, name: str) -> str:
    if kind == "queue":
        return f"There is no queue {name!r}: ./punctual queues lists them."
    if kind == "team":
        return f"You are not a member of a team {name!r}: ./punctual teams lists yours."
    return f"You have no secret {name!r}: ./punctual secrets set {name} makes it."


def _check_ids_of_jobs(client: Client, owner: str, steps: Sequence[JobStep]) -> None:
    asked: dict[str, bool] = {}
    for step in steps:
        for after in step.job.dependencies:
            if not is_id(after.job):
                continue
            if after.job not in asked:
                asked[after.job] = _is_own_job(client, owner, after.job)
            if not asked[after.job]:
                raise step.job.place.parts()["dependencies"].refusal(f"You have no job {after.job}.")


def _is_own_job(client: Client, owner: str, job_id: str) -> bool:
    try:
        return client.job(job_id).raw.get("owner", owner) == owner
    except ClientError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
