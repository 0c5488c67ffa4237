"""`edit` and `delete` a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import app, connect, find_job, resolve_job_id
from punctual_cli.argument_parsing import parse_dependency
from punctual_cli.commands.job_options import (
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
    TimezoneOption,
    build_retry_policy,
    build_schedules,
    build_specification,
    calendar_fields,
    parse_input_options,
    parse_secret_grants,
    resolve_dependencies,
)
from punctual_cli.commands.jobs import describe_next_run
from punctual_cli.commands.options import JobArgument, ResultFormatOption, YesOption
from punctual_cli.commands.submit import print_warnings
from punctual_cli.output.progress_bars import UPLOAD_PROGRESS
from punctual_cli.output.results import write_resource
from punctual_cli.output.terminal import confirm, write_message
from punctual_client.errors import PROGRAM, UsageError
from punctual_client.json_fields import as_objects
from punctual_client.programs import prepare_inputs, prepare_program

if TYPE_CHECKING:
    from punctual_client.resources.jobs import Job


@app.command()
def edit(  # noqa: PLR0917  one parameter per option
    job: JobArgument,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="New script or compiled program.", dir_okay=False)
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="New name.")] = None,
    runtime: RuntimeOption = None,
    arg: ArgOption = None,
    env: EnvOption = None,
    stdin: StdinOption = None,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Remove the standard input.")] = False,
    inputs: InputOption = None,
    no_inputs: Annotated[bool, typer.Option("--no-inputs", help="Remove all input files.")] = False,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    no_secrets: Annotated[bool, typer.Option("--no-secrets", help="Remove all secrets.")] = False,
    every: EveryOption = None,
    cron: CronOption = None,
    at: AtOption = None,
    tz: TimezoneOption = None,
    calendar: CalendarOption = None,
    no_schedules: Annotated[bool, typer.Option("--no-schedules", help="Delete all schedules.")] = False,
    after: AfterOption = None,
    no_after: Annotated[bool, typer.Option("--no-after", help="Remove all dependencies.")] = False,
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
    output: ResultFormatOption = None,
) -> None:
    """Change the given properties of a job and keep the others.

    --every, --cron and --at replace the schedules, --input all inputs, --secret and --secret-file all secrets.
    """
    schedules = build_schedules(every or [], cron or [], at or [], tz, calendar)
    if no_schedules and (schedules or calendar is not None):
        raise UsageError("--no-schedules cannot be combined with --every, --cron, --at or --calendar.")
    if no_after and after:
        raise UsageError("--no-after cannot be combined with --after.")
    secrets = parse_secret_grants(secret, secret_file)
    if no_secrets and secrets:
        raise UsageError("--no-secrets cannot be combined with --secret or --secret-file.")
    input_files = parse_input_options(stdin, inputs, no_stdin=no_stdin, no_inputs=no_inputs)
    changes = build_specification(
        arg, env, cpu, memory, disk, resource, timeout, deadline, priority, queue, team, max_concurrency, network
    )
    if name is not None:
        changes["name"] = name
    if secrets or no_secrets:
        changes["secrets"] = secrets
    if retry := build_retry_policy(retries, backoff, retry_on):
        changes["retry"] = retry
    for word in after or []:
        parse_dependency(word)
    with connect() as client:
        job_id = resolve_job_id(client, job)
        if schedules or no_schedules or calendar is not None:
            changes["schedules"] = [] if no_schedules else _edited_schedules(client.job(job_id), schedules, calendar)
        if after or no_after:
            changes["dependencies"] = resolve_dependencies(client, after or [])
        if file is not None:
            changes |= prepare_program(client, file, runtime, progress=UPLOAD_PROGRESS)
        elif runtime is not None:
            changes["runtime"] = runtime.value
        changes |= prepare_inputs(
            client, stdin, input_files, no_stdin=no_stdin, no_inputs=no_inputs, progress=UPLOAD_PROGRESS
        )
        if not changes:
            raise UsageError(f"No change was given: {PROGRAM} edit --help lists the options.")
        edited = client.edit_job(job_id, changes)
    write_message(f"Edited {edited.name_and_owner}.{describe_next_run(edited)}")
    print_warnings(edited)
    write_resource(edited.raw, output)


def _edited_schedules(present: Job, wanted: list[dict[str, object]], calendar: str | None) -> list[dict[str, object]]:
    """Edit a single schedule in place, so that it keeps its id; a calendar alone applies to all schedules."""
    ids = [schedule.get("id") for schedule in as_objects(present.raw.get("schedules") or [])]
    if not wanted:
        if not ids:
            raise UsageError("--calendar has no meaning for a job without schedules.")
        return [{"id": schedule_id, **calendar_fields(calendar)} for schedule_id in ids]
    if len(wanted) == len(ids) == 1:
        return [{"id": ids[0], **wanted[0]}]
    return wanted


@app.command()
def delete(job: JobArgument, yes: YesOption = False) -> None:
    """Delete a job: cancel its executions and hide it. Past executions remain readable."""
    with connect() as client:
        found = find_job(client, job)
        confirm(f"Delete the job {found.name_and_owner}, and cancel its executions?", yes=yes)
        client.delete_job(found.id)
    write_message(f"Deleted {found.name_and_owner}.")
