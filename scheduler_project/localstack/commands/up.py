"""`up`: start the stack step by step, run one job to prove it, then wait or detach.

If it fails or is interrupted, it stops every process that it started.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping

from scheduler_project.localstack.commands.down import is_anything_running, stop_all
from scheduler_project.localstack.config import StackConfig, ensure_free_ports, load_config
from scheduler_project.localstack.console import Console
from scheduler_project.localstack.credentials import Credentials
from scheduler_project.localstack.engines.base import wait_until_engine_ready
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.stack import (
    APPLICATIONS,
    ENGINES,
    SUPERVISOR,
    Stack,
    assemble_stack,
    list_local_engines,
)
from scheduler_project.localstack.stack_lock import hold_stack_lock
from scheduler_project.localstack.startup.bootstrap import run_bootstrap
from scheduler_project.localstack.startup.hello_job import run_hello_job
from scheduler_project.localstack.startup.preflight import prepare_directories, require_ports, require_user_namespaces
from scheduler_project.localstack.startup.readiness import wait_until_web_ready
from scheduler_project.localstack.supervisor.client import SupervisorClient
from scheduler_project.localstack.supervisor.configuration import start_supervisor

SUPERVISOR_START_SECONDS = 15.0
# How long to wait for a concurrent `./punctual down`.
STOP_TIMEOUT_SECONDS = 90.0
POLL_SECONDS = 0.05
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def up(layout: Layout, caller: Mapping[str, str], console: Console, *, detach: bool) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, _raise_interrupt)
    prepare_directories(layout)
    with hold_stack_lock(layout):
        if is_everything_running(layout):
            console.print("Punctual is already running.", style="bold")
            show_credentials(layout, console)
            return
        child = _start(layout, caller, console, stays_behind=detach)
        if detach:
            console.print("It keeps running in the background: `./punctual stack status`, `./punctual down`.")
            return
    _wait_until_stopped(layout, console, child)


def is_everything_running(layout: Layout) -> bool:
    """Return whether the supervisor and all of its processes are running."""
    if not is_anything_running(layout):
        return False
    config = StackConfig.read(layout.config)
    if config is None:
        return False
    supervisor = SupervisorClient(layout, config)
    return supervisor.answers() and all(state.is_running for state in supervisor.states())


def show_credentials(layout: Layout, console: Console) -> None:
    credentials = Credentials.read(layout)
    if credentials is not None:
        credentials.show(console, layout)


def _start(
    layout: Layout, caller: Mapping[str, str], console: Console, *, stays_behind: bool
) -> subprocess.Popen[bytes]:
    try:
        if is_anything_running(layout):
            with console.step("Stopping processes of an earlier start", "Stopped processes of an earlier start"):
                stop_all(layout)
        # Even without a live record: children of a killed process may have survived it.
        stop_all(layout)
        stack = _prepare(layout, caller, console)
        child = _start_engines(stack, console, stays_behind=stays_behind)
        _start_applications(stack, console)
        _run_first_job(stack, console)
    except BaseException as error:
        # Ignore a second Ctrl-C, which would leave half a stack running.
        _ignore_stop_signals()
        stop_all(layout)
        if isinstance(error, KeyboardInterrupt):
            console.print("Interrupted: nothing of the stack is running.")
        raise
    return child


def _prepare(layout: Layout, caller: Mapping[str, str], console: Console) -> Stack:
    local = list_local_engines(caller)
    require_ports(layout)
    require_user_namespaces()
    config = load_config(layout.config, data=[layout.data(name) for name in ENGINES])
    config = ensure_free_ports(config, layout.config)
    stack = assemble_stack(layout, config, caller)
    if local:
        with console.step("Preparing data directories", f"Data directories under {layout.var}"):
            for engine in stack.engines:
                engine.prepare()
    return stack


def _start_engines(stack: Stack, console: Console, *, stays_behind: bool) -> subprocess.Popen[bytes]:
    names = [engine.name for engine in stack.engines]
    title = ", ".join(names) or "the supervisor"
    supervisor = SupervisorClient(stack.layout, stack.config)
    with console.step(f"Starting {title}", f"Started {title}"):
        child = start_supervisor(stack, stays_behind=stays_behind)
        _wait_for_supervisor(supervisor, child, stack.layout)
        for engine in stack.engines:
            wait_until_engine_ready(engine, lambda: supervisor.require_alive(names))
    return child


def _wait_for_supervisor(supervisor: SupervisorClient, child: subprocess.Popen[bytes], layout: Layout) -> None:
    deadline = time.monotonic() + SUPERVISOR_START_SECONDS
    while not supervisor.answers():
        if child.poll() is not None or time.monotonic() > deadline:
            raise StackError("The process supervisor did not start.", log=layout.log(SUPERVISOR))
        time.sleep(POLL_SECONDS)


def _start_applications(stack: Stack, console: Console) -> None:
    supervisor = SupervisorClient(stack.layout, stack.config)
    with console.step(
        "Migrating the database; creating bucket, admin and token", "Database, bucket, admin user and token"
    ):
        run_bootstrap(stack)
    with console.step("Starting web, beat, worker and Flower", "Started web, beat, worker and Flower"):
        supervisor.start(APPLICATIONS)
        wait_until_web_ready(stack.layout, lambda: supervisor.require_alive(stack.names))


def _run_first_job(stack: Stack, console: Console) -> None:
    layout = stack.layout
    supervisor = SupervisorClient(layout, stack.config)
    credentials = Credentials.build(layout, stack.config)
    credentials.write(layout)
    with console.step("Running a first job through the API", "Ran a first job through the API"):
        greeting = run_hello_job(layout, stack.config.secrets.api_token, lambda: supervisor.require_alive(stack.names))
    for line in greeting.log.splitlines():
        console.print(f"    {line}", style="cyan")
    console.print(f"    {greeting.status}, exit code {greeting.exit_code}", style="cyan")
    if greeting.exit_code != 0:
        raise StackError("The first job did not succeed.", log=layout.log("worker"))
    supervisor.wait_until_running(stack.names)
    console.print()
    console.print("Punctual is running.", style="bold")
    credentials.show(console, layout)


def _wait_until_stopped(layout: Layout, console: Console, child: subprocess.Popen[bytes]) -> None:
    """Wait for Ctrl-C, a signal, or the end of the supervisor (a `./punctual down` elsewhere)."""
    try:
        console.print("Press Ctrl-C to stop.", style="bold")
        code = child.wait()
    except KeyboardInterrupt:
        _ignore_stop_signals()
        with (
            hold_stack_lock(layout, seconds=STOP_TIMEOUT_SECONDS),
            console.step("Stopping", "Stopped: nothing of the stack is running"),
        ):
            stop_all(layout)
        return
    _ignore_stop_signals()
    if code != 0:
        stop_all(layout)
        raise StackError(
            f"The process supervisor was killed (code {code}), so the stack was stopped.",
            log=layout.log(SUPERVISOR),
        )
    console.print("The stack was stopped.")


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _ignore_stop_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
