"""`submit`: a file becomes a job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect
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
    dependencies_of,
    retry_of,
    schedules_of,
    secrets_of,
    specification_of,
)
from cli.commands.options import AnswerOption, WaitLimitOption, WaitOption
from cli.errors import UsageMistakeError
from cli.following import EXIT_INTERRUPTED, wait_and_exit
from cli.programs import check_given, prepare_given, prepare_program
from cli.progress import UPLOADS
from cli.results import Format, write_answer
from cli.terminal import say, shown_time
from cli.values import parse_after, parse_duration

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Job


@app.command()
def submit(  # noqa: PLR0917  each is an option of the command line
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A script or a compiled program.", dir_okay=False)],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the file's name.")] = None,
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
    tz: ZoneOption = None,
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
    output: AnswerOption = None,
) -> None:
    """Submit FILE as a job: now, or when --every, --cron, --at or --after say. Prints the job's id.

    \b
    punctual submit report.py --wait
    punctual submit backup.sh --cron "0 3 * * *" --tz Europe/Paris --retries 3
    punctual submit publish.sh --after report --env DRY_RUN=1
    """
    wait_until = time.monotonic() + parse_duration(wait_limit)
    schedules = schedules_of(every or [], cron or [], at or [], tz, calendar)
    if calendar and not schedules:
        raise UsageMistakeError("--calendar has no meaning without --every, --cron or --at.")
    if backoff is not None and not retries:
        raise UsageMistakeError("--backoff has no meaning without --retries.")
    if retry_on and not retries:
        raise UsageMistakeError("--retry-on has no meaning without --retries.")
    specification: dict[str, object] = {
        "name": name or file.stem,
        **specification_of(
            arg, env, cpu, memory, disk, resource, timeout, deadline, priority, queue, team, max_concurrency, network
        ),
    }
    if secrets := secrets_of(secret, secret_file):
        specification["secrets"] = secrets
    if schedules:
        specification["schedules"] = schedules
    if retry := retry_of(retries, backoff, retry_on):
        specification["retry"] = retry
    for word in after or []:
        parse_after(word)
    check_given(stdin, inputs)
    with connect() as client:
        if after:
            specification["dependencies"] = dependencies_of(client, after)
        specification |= prepare_program(client, file, runtime, watch=UPLOADS)
        specification |= prepare_given(client, stdin, inputs, watch=UPLOADS)
        job = client.submit_job(specification)
        say(f"Submitted {job.name}.{when(job)}")
        warn(job)
        if wait:
            _wait_for(client, job, wait_until, output)
        write_answer(job.raw, output, short=job.id)


def when(job: Job) -> str:
    return f" Next run: {shown_time(job.next_instants[0])}." if job.next_instants else ""


def warn(job: Job) -> None:
    for warning in job.warnings:
        say(f"Note: {warning}")


def _wait_for(client: Client, job: Job, deadline: float, output: Format | None) -> None:
    try:
        execution = client.first_execution(job.id, deadline=deadline)
    except KeyboardInterrupt:
        say(f"Stopped waiting; the job stays. See it: ./punctual show {job.id} · Cancel it: ./punctual cancel {job.id}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    wait_and_exit(client, execution.id, deadline=deadline, output=output)
