"""`submit`: create a job from a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import app, connect
from punctual_cli.argument_parsing import parse_dependency, parse_duration
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
    parse_input_options,
    parse_secret_grants,
    resolve_dependencies,
)
from punctual_cli.commands.jobs import describe_next_run
from punctual_cli.commands.options import ResultFormatOption, WaitLimitOption, WaitOption
from punctual_cli.following import EXIT_INTERRUPTED, wait_and_exit
from punctual_cli.output.progress_bars import UPLOAD_PROGRESS
from punctual_cli.output.results import Format, write_resource
from punctual_cli.output.terminal import write_message
from punctual_client.errors import PROGRAM, UsageError
from punctual_client.programs import prepare_inputs, prepare_program

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.jobs import Job


@app.command()
def submit(  # noqa: PLR0917  one parameter per option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Script or compiled program.", dir_okay=False)],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Job name. Default: the file's name.")] = None,
    runtime: RuntimeOption = None,
    arg: ArgOption = None,
    env: EnvOption = None,
    stdin: StdinOption = None,
    inputs: InputOption = None,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    every: EveryOption = None,
    cron: CronOption = None,
    at: AtOption = None,
    tz: TimezoneOption = None,
    calendar: CalendarOption = None,
    after: AfterOption = None,
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
    wait: WaitOption = False,
    wait_limit: WaitLimitOption = "1d",
    output: ResultFormatOption = None,
) -> None:
    """Submit FILE as a job that runs now, or as --every, --cron, --at or --after define. Prints the job's id.

    \b
    punctual submit report.py --wait
    punctual submit backup.sh --cron "0 3 * * *" --tz Europe/Paris --retries 3
    punctual submit publish.sh --after report --env DRY_RUN=1
    """
    wait_until = time.monotonic() + parse_duration(wait_limit)
    schedules = build_schedules(every or [], cron or [], at or [], tz, calendar)
    if calendar and not schedules:
        raise UsageError("--calendar has no meaning without --every, --cron or --at.")
    if backoff is not None and not retries:
        raise UsageError("--backoff has no meaning without --retries.")
    if retry_on and not retries:
        raise UsageError("--retry-on has no meaning without --retries.")
    specification: dict[str, object] = {
        "name": name or file.stem,
        **build_specification(
            arg, env, cpu, memory, disk, resource, timeout, deadline, priority, queue, team, max_concurrency, network
        ),
    }
    if secrets := parse_secret_grants(secret, secret_file):
        specification["secrets"] = secrets
    if schedules:
        specification["schedules"] = schedules
    if retry := build_retry_policy(retries, backoff, retry_on):
        specification["retry"] = retry
    for word in after or []:
        parse_dependency(word)
    input_files = parse_input_options(stdin, inputs)
    with connect() as client:
        if after:
            specification["dependencies"] = resolve_dependencies(client, after)
        specification |= prepare_program(client, file, runtime, progress=UPLOAD_PROGRESS)
        specification |= prepare_inputs(client, stdin, input_files, progress=UPLOAD_PROGRESS)
        job = client.submit_job(specification)
        write_message(f"Submitted {job.name}.{describe_next_run(job)}")
        print_warnings(job)
        if wait:
            _wait_for_first_execution(client, job, wait_until, output)
        write_resource(job.raw, output, short=job.id)


def print_warnings(job: Job) -> None:
    for warning in job.warnings:
        write_message(f"Note: {warning}")


def _wait_for_first_execution(client: Client, job: Job, deadline: float, output: Format | None) -> None:
    try:
        execution = client.first_execution(job.id, deadline=deadline)
    except KeyboardInterrupt:
        write_message(
            f"Stopped waiting; the job remains. Show it: {PROGRAM} show {job.id} · Cancel it: {PROGRAM} cancel {job.id}"
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    wait_and_exit(client, execution.id, deadline=deadline, output=output)
