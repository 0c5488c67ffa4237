"""Starts the stack, step by step, proves it with one job, and then either waits or leaves it running.

However it ends early (a problem, Ctrl-C, a signal), it leaves nothing running that it started.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping

from scheduler_project.embedded.bootstrap import bootstrap
from scheduler_project.embedded.config import StackConfig, load_config, with_free_ports
from scheduler_project.embedded.console import Console
from scheduler_project.embedded.control import Supervisor
from scheduler_project.embedded.credentials import Credentials
from scheduler_project.embedded.down import anything_runs, stop
from scheduler_project.embedded.engine import wait_until_ready as wait_for_engine
from scheduler_project.embedded.hello import run_hello_job
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.locking import exclusively
from scheduler_project.embedded.preflight import prepare_directories, require_ports, require_user_namespaces
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.readiness import wait_until_ready
from scheduler_project.embedded.stack import APPLICATIONS, ENGINES, SUPERVISOR, Stack, assemble, local_engines
from scheduler_project.embedded.supervision import start_supervisor

SUPERVISOR_SECONDS = 15.0
# How long a `./punctual down` elsewhere may take that came before our own end.
STOP_SECONDS = 90.0
POLL_SECONDS = 0.05
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def up(layout: Layout, caller: Mapping[str, str], console: Console, *, detach: bool) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    prepare_directories(layout)
    with exclusively(layout):
        if is_complete(layout):
            console.say("Punctual is already running.", style="bold")
            show_credentials(layout, console)
            return
        child = _start(layout, caller, console, stays_behind=detach)
        if detach:
            console.say("It goes on in the background: `./punctual stack status`, `./punctual down`.")
            return
    _wait(layout, console, child)


def is_complete(layout: Layout) -> bool:
    """Whether a supervisor runs here and everything it looks after does too."""
    if not anything_runs(layout):
        return False
    config = StackConfig.read(layout.config)
    if config is None:
        return False
    supervisor = Supervisor(layout, config)
    return supervisor.answers() and all(state.is_running for state in supervisor.states())


def show_credentials(layout: Layout, console: Console) -> None:
    credentials = Credentials.read(layout)
    if credentials is not None:
        credentials.show(console, layout)


def _start(
    layout: Layout, caller: Mapping[str, str], console: Console, *, stays_behind: bool
) -> subprocess.Popen[bytes]:
    try:
        if anything_runs(layout):
            with console.step("Stopping what a former start left", "Stopped what a former start left"):
                stop(layout)
        # Also when nothing runs by its record: children of a killed process may have outlived it.
        stop(layout)
        stack = _prepare(layout, caller, console)
        child = _start_engines(stack, console, stays_behind=stays_behind)
        _start_applications(stack, console)
        _greet(stack, console)
    except BaseException as error:
        # From here on nothing may interrupt: a second Ctrl-C would leave half a stack behind.
        _ignore_stop_signals()
        stop(layout)
        if isinstance(error, KeyboardInterrupt):
            console.say("Interrupted: nothing of the stack is running.")
        raise
    return child


def _prepare(layout: Layout, caller: Mapping[str, str], console: Console) -> Stack:
    local = local_engines(caller)
    require_ports(layout)
    require_user_namespaces()
    config = load_config(layout.config, data=[layout.data(name) for name in ENGINES])
    config = with_free_ports(config, layout.config)
    stack = assemble(layout, config, caller)
    if local:
        with console.step("Preparing data directories", f"Data directories under {layout.var}"):
            for engine in stack.engines:
                engine.prepare()
    return stack


def _start_engines(stack: Stack, console: Console, *, stays_behind: bool) -> subprocess.Popen[bytes]:
    names = [engine.name for engine in stack.engines]
    title = ", ".join(names) or "the supervisor"
    supervisor = Supervisor(stack.layout, stack.config)
    with console.step(f"Starting {title}", f"Started {title}"):
        child = start_supervisor(stack, stays_behind=stays_behind)
        _wait_for_supervisor(supervisor, child, stack.layout)
        for engine in stack.engines:
            wait_for_engine(engine, lambda: supervisor.require_alive(names))
    return child


def _wait_for_supervisor(supervisor: Supervisor, child: subprocess.Popen[bytes], layout: Layout) -> None:
    deadline = time.monotonic() + SUPERVISOR_SECONDS
    while not supervisor.answers():
        if child.poll() is not None or time.monotonic() > deadline:
            raise StackProblem("The process supervisor did not start.", log=layout.log(SUPERVISOR))
        time.sleep(POLL_SECONDS)


def _start_applications(stack: Stack, console: Console) -> None:
    supervisor = Supervisor(stack.layout, stack.config)
    with console.step(
        "Migrating the database; making bucket, admin and token", "Database, bucket, admin user and token"
    ):
        bootstrap(stack)
    with console.step("Starting web, beat, worker and Flower", "Started web, beat, worker and Flower"):
        supervisor.start(APPLICATIONS)
        wait_until_ready(stack.layout, lambda: supervisor.require_alive(stack.names))


def _greet(stack: Stack, console: Console) -> None:
    layout = stack.layout
    supervisor = Supervisor(layout, stack.config)
    credentials = Credentials.of(layout, stack.config)
    credentials.write(layout)
    with console.step("Running a first job through the API", "Ran a first job through the API"):
        greeting = run_hello_job(layout, stack.config.secrets.api_token, lambda: supervisor.require_alive(stack.names))
    for line in greeting.log.splitlines():
        console.say(f"    {line}", style="cyan")
    console.say(f"    {greeting.status}, exit code {greeting.exit_code}", style="cyan")
    if greeting.exit_code != 0:
        raise StackProblem("The first job did not succeed.", log=layout.log("worker"))
    supervisor.wait_until_running(stack.names)
    console.say()
    console.say("Punctual is running.", style="bold")
    credentials.show(console, layout)


def _wait(layout: Layout, console: Console, child: subprocess.Popen[bytes]) -> None:
    """Until Ctrl-C, a signal, or the end of the supervisor, which `./punctual down` elsewhere means."""
    try:
        console.say("Press Ctrl-C to stop.", style="bold")
        code = child.wait()
    except KeyboardInterrupt:
        _ignore_stop_signals()
        with (
            exclusively(layout, seconds=STOP_SECONDS),
            console.step("Stopping", "Stopped: nothing of the stack is running"),
        ):
            stop(layout)
        return
    _ignore_stop_signals()
    if code != 0:
        stop(layout)
        raise StackProblem(
            f"The process supervisor was ended from outside (code {code}), so the stack was stopped.",
            log=layout.log(SUPERVISOR),
        )
    console.say("The stack was stopped.")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _ignore_stop_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
