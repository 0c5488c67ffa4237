"""`down`: stop the applications together, then the supervisor with the engines.

Afterwards no process of the stack is running, whatever state it was in.
"""

from __future__ import annotations

import signal

from scheduler_project.localstack.applications import DRAIN_SECONDS
from scheduler_project.localstack.config import StackConfig
from scheduler_project.localstack.console import Console
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.processes.records import ProcessRecord, stop_leftover_processes
from scheduler_project.localstack.stack import APPLICATIONS, SUPERVISOR
from scheduler_project.localstack.stack_lock import hold_stack_lock
from scheduler_project.localstack.supervisor.client import SupervisorClient
from scheduler_project.localstack.supervisor.configuration import list_stopping_order

APPLICATIONS_STOP_SECONDS = 2 * DRAIN_SECONDS + 5.0
ENGINES_STOP_SECONDS = 60.0


def down(layout: Layout, console: Console) -> None:
    if not layout.run.is_dir():
        console.print("Nothing is running.")
        return
    with hold_stack_lock(layout):
        if not is_anything_running(layout):
            console.print("Nothing is running.")
            return
        with console.step("Stopping", "Stopped: nothing of the stack is running"):
            stop_all(layout)


def is_anything_running(layout: Layout) -> bool:
    records = (ProcessRecord.read(path) for path in list_stopping_order(layout))
    return any(record is not None and record.is_alive() for record in records)


def stop_all(layout: Layout) -> list[str]:
    """Stop everything, by signal before SIGKILL; return the processes that a dead supervisor had left running."""
    supervisor = ProcessRecord.read(layout.record(SUPERVISOR))
    if supervisor is not None and supervisor.is_alive():
        try:
            _request_stop(layout)
        except StackError:
            # It does not answer, or its configuration is missing: the signal has the same effect.
            supervisor.end(signal.SIGTERM, APPLICATIONS_STOP_SECONDS + ENGINES_STOP_SECONDS)
        supervisor.wait(ENGINES_STOP_SECONDS)
    return stop_leftover_processes(list_stopping_order(layout))


def _request_stop(layout: Layout) -> None:
    config = StackConfig.read(layout.config)
    if config is None:
        raise StackError(f"{layout.config} is missing.")
    supervisor = SupervisorClient(layout, config)
    supervisor.stop(APPLICATIONS, seconds=APPLICATIONS_STOP_SECONDS)
    supervisor.shutdown()
