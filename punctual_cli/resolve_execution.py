"""Resolution of an argument to an execution: its id, or a job for its newest execution."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from shlex import quote
from typing import TYPE_CHECKING, NoReturn, TypeVar

from punctual_cli.app import find_job_by_name
from punctual_cli.argument_parsing import is_uuid
from punctual_cli.output.terminal import write_message
from punctual_client.errors import PROGRAM, ApiError

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.jobs import Job

Result = TypeVar("Result")


def with_execution(client: Client, word: str, call: Callable[[str], Result]) -> Result:
    """Call a function with the execution that a word names, and print its id if the word names a job.

    An id is first tried as an execution's, which saves most calls a second request.
    """
    if not is_uuid(word):
        return call(_newest_execution_id(client, find_job_by_name(client, word)))
    return _call_with_id(client, word, call, lambda job: call(_newest_execution_id(client, job)))


def with_execution_id(client: Client, word: str, call: Callable[[str], Result]) -> Result:
    """Like `with_execution` for commands that change an execution: refuse a job."""

    def refuse(job: Job) -> NoReturn:
        raise ApiError(
            f"{word} is the job {job.name}: {PROGRAM} executions --job {word} lists its executions.",
            status=HTTPStatus.NOT_FOUND,
        )

    return _call_with_id(client, word, call, refuse)


def _call_with_id(client: Client, word: str, call: Callable[[str], Result], on_job: Callable[[Job], Result]) -> Result:
    try:
        return call(word)
    except ApiError as error:
        job = _find_job_with_id(client, word, error)
        if job is None:
            raise
    return on_job(job)


def _find_job_with_id(client: Client, identifier: str, error: ApiError) -> Job | None:
    """Return the job with this id, after no execution was found with it."""
    if error.status != HTTPStatus.NOT_FOUND:
        return None
    try:
        return client.job(identifier)
    except ApiError:
        return None


def _newest_execution_id(client: Client, job: Job) -> str:
    newest = client.executions(job_id=job.id, limit=1)
    if not newest:
        raise ApiError(f"The job {job.name} has no execution yet: {PROGRAM} run {quote(job.name)} makes one.")
    write_message(f"The newest execution of {job.name_and_owner}: {newest[0].id}")
    return newest[0].id
