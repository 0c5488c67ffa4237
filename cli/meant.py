"""Which execution is meant by a word that may name a job: its newest one, and which that is is said."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from shlex import quote
from typing import TYPE_CHECKING, NoReturn, TypeVar

from cli.app import find_named
from cli.errors import ClientError
from cli.terminal import say
from cli.values import is_id

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Job

Told = TypeVar("Told")


def of_execution(client: Client, word: str, ask: Callable[[str], Told]) -> Told:
    """What is asked of an execution. An id is taken for an execution's first, so that most cost no more than that."""
    if not is_id(word):
        return ask(_newest(client, find_named(client, word)))
    return _ask(client, word, ask, lambda job: ask(_newest(client, job)))


def refuse_job(client: Client, word: str, ask: Callable[[str], Told]) -> Told:
    """The same where no execution is to be guessed, since something is done to it."""

    def refuse(job: Job) -> NoReturn:
        raise ClientError(
            f"{word} is the job {job.name}: ./punctual executions --job {word} lists its executions.",
            status=HTTPStatus.NOT_FOUND,
        )

    return _ask(client, word, ask, refuse)


def _ask(client: Client, word: str, ask: Callable[[str], Told], of_job: Callable[[Job], Told]) -> Told:
    try:
        return ask(word)
    except ClientError as error:
        job = job_instead(client, word, error)
        if job is None:
            raise
    return of_job(job)


def job_instead(client: Client, identifier: str, error: ClientError) -> Job | None:
    """The job of that id, where no execution was found by it."""
    if error.status != HTTPStatus.NOT_FOUND:
        return None
    try:
        return client.job(identifier)
    except ClientError:
        return None


def _newest(client: Client, job: Job) -> str:
    newest = client.executions(job_id=job.id, limit=1)
    if not newest:
        raise ClientError(f"The job {job.name} has no execution yet: ./punctual run {quote(job.name)} makes one.")
    say(f"The newest execution of {job.name_and_owner}: {newest[0].id}")
    return newest[0].id
