"""`edit` and `delete`: a job becomes another one, or goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.answers import as_objects
from cli.app import app, connect, find_job, resolve_job
from cli.commands.job_options import (
    AfterOption,
    ArgOption,
    AtOption,
    BackoffOption,
    CalendarOption,
    ConcurrencyOption,
    CpuOption,
    CronOption,
    DeadlineOption,
    DiskOption,
    EnvOption,
    EveryOption,
    InputOption,
    MemoryOption,
    NetworkOption,
    PriorityOption,
    QueueOption,
    ResourceOption,
    RetriesOption,
    RetryOnOption,
    RuntimeOption,
    SecretFileOption,
    SecretOption,
    StdinOption,
    TeamOption,
    TimeoutOption,
    ZoneOption,
    calendar_of,
    dependencies_of,
    retry_of,
    schedules_of,
    secrets_of,
    specification_of,
)
from cli.commands.options import AnswerOption, JobArgument, YesOption
from cli.commands.submit import warn, when
from cli.errors import UsageMistakeError
from cli.programs import check_given, prepare_given, prepare_program
from cli.progress import UPLOADS
from cli.results import write_answer
from cli.terminal import confirm, say
from cli.values import parse_after

if TYPE_CHECKING:
    from cli.records import Job


@app.command()
def edit(  # noqa: PLR0917  each is an option of the command line
    job: JobArgument,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Another script or compiled program.", dir_okay=False)
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Another name.")] = None,
    runtime: RuntimeOption = None,
    arg: ArgOption = None,
    env: EnvOption = None,
    stdin: StdinOption = None,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Read nothing on standard input.")] = False,
    inputs: InputOption = None,
    no_inputs: Annotated[bool, typer.Option("--no-inputs", help="Have no input files.")] = False,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    no_secrets: Annotated[bool, typer.Option("--no-secrets", help="Be given no secrets.")] = False,
    every: EveryOption = None,
    cron: CronOption = None,
    at: AtOption = None,
    tz: ZoneOption = None,
    calendar: CalendarOption = None,
    no_schedules: Annotated[bool, typer.Option("--no-schedules", help="Delete its schedules.")] = False,
    after: AfterOption = None,
    no_after: Annotated[bool, typer.Option("--no-after", help="Run after no other job.")] = False,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    resource: ResourceOption = None,
    timeout: TimeoutOption = None,
    deadline: DeadlineOption = None,
    priority: PriorityOption = None,
    queue: QueueOption = None,
    team: TeamOption = None,
    retries: RetriesOption = None,
    backoff: BackoffOption = None,
    retry_on: RetryOnOption = None,
    max_concurrency: ConcurrencyOption = None,
    network: NetworkOption = None,
    output: AnswerOption = None,
) -> None:
    """Change what is given and leave the rest.

    --every, --cron and --at replace the schedules, --input all inputs, --secret and --secret-file all secrets.
    """
    schedules = schedules_of(every or [], cron or [], at or [], tz, calendar)
    if no_schedules and (schedules or calendar is not None):
        raise UsageMistakeError("--no-schedules has no meaning beside --every, --cron, --at or --calendar.")
    if no_after and after:
        raise UsageMistakeError("--no-after has no meaning beside --after.")
    secrets = secrets_of(secret, secret_file)
    if no_secrets and secrets:
        raise UsageMistakeError("--no-secrets has no meaning beside --secret or --secret-file.")
    check_given(stdin, inputs, no_stdin=no_stdin, no_inputs=no_inputs)
    changes = specification_of(
        arg, env, cpu, memory, disk, resource, timeout, deadline, priority, queue, team, max_concurrency, network
    )
    if name is not None:
        changes["name"] = name
    if secrets or no_secrets:
        changes["secrets"] = secrets
    if retry := retry_of(retries, backoff, retry_on):
        changes["retry"] = retry
    for word in after or []:
        parse_after(word)
    with connect() as client:
        job_id = resolve_job(client, job)
        if schedules or no_schedules or calendar is not None:
            changes["schedules"] = [] if no_schedules else _schedules(client.job(job_id), schedules, calendar)
        if after or no_after:
            changes["dependencies"] = dependencies_of(client, after or [])
        if file is not None:
            changes |= prepare_program(client, file, runtime, watch=UPLOADS)
        elif runtime is not None:
            changes["runtime"] = runtime.value
        changes |= prepare_given(client, stdin, inputs, no_stdin=no_stdin, no_inputs=no_inputs, watch=UPLOADS)
        if not changes:
            raise UsageMistakeError("Nothing is to be changed: ./punctual edit --help lists what can be.")
        edited = client.edit_job(job_id, changes)
    say(f"Edited {edited.name_and_owner}.{when(edited)}")
    warn(edited)
    write_answer(edited.raw, output)


def _schedules(present: Job, wanted: list[dict[str, object]], calendar: str | None) -> list[dict[str, object]]:
    """A single schedule in the place of a single one is the same one, edited; a calendar alone is for all of them."""
    ids = [schedule.get("id") for schedule in as_objects(present.raw.get("schedules") or [])]
    if not wanted:
        if not ids:
            raise UsageMistakeError("--calendar has no meaning for a job without schedules.")
        return [{"id": own, **calendar_of(calendar)} for own in ids]
    if len(wanted) == len(ids) == 1:
        return [{"id": ids[0], **wanted[0]}]
    return wanted


@app.command()
def delete(job: JobArgument, yes: YesOption = False) -> None:
    """Delete a job: cancel what it runs, and hide it. Its executions stay readable."""
    with connect() as client:
        found = find_job(client, job)
        confirm(f"Delete the job {found.name_and_owner}, and cancel what it runs?", yes=yes)
        client.delete_job(found.id)
    say(f"Deleted {found.name_and_owner}.")
