"""Stops the stack: the applications first, together, then the supervisor with the engines.

It ends with nothing of the stack running, whatever state the stack was in.
"""

from __future__ import annotations

import signal

from scheduler_project.embedded.applications import DRAIN_SECONDS
from scheduler_project.embedded.config import StackConfig
from scheduler_project.embedded.console import Console
from scheduler_project.embedded.control import Supervisor
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.leftovers import Identity, end_leftovers
from scheduler_project.embedded.locking import exclusively
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.stack import APPLICATIONS, SUPERVISOR
from scheduler_project.embedded.supervision import stopping_order

APPLICATIONS_SECONDS = 2 * DRAIN_SECONDS + 5.0
ENGINES_SECONDS = 60.0


def down(layout: Layout, console: Console) -> None:
    if not layout.run.is_dir():
        console.say("Nothing is running.")
        return
    with exclusively(layout):
        if not anything_runs(layout):
            console.say("Nothing is running.")
            return
        with console.step("Stopping", "Stopped: nothing of the stack is running"):
            stop(layout)


def anything_runs(layout: Layout) -> bool:
    records = (Identity.read(record) for record in stopping_order(layout))
    return any(identity is not None and identity.is_alive() for identity in records)


def stop(layout: Layout) -> list[str]:
    """Stops everything, asking before it kills; returns what a dead supervisor had left behind."""
    supervisor = Identity.read(layout.record(SUPERVISOR))
    if supervisor is not None and supervisor.is_alive():
        try:
            _ask_to_stop(layout)
        except StackProblem:
            # It does not answer, or its configuration is gone: the signal means the same.
            supervisor.end(signal.SIGTERM, APPLICATIONS_SECONDS + ENGINES_SECONDS)
        supervisor.wait(ENGINES_SECONDS)
    return end_leftovers(stopping_order(layout))


def _ask_to_stop(layout: Layout) -> None:
    config = StackConfig.read(layout.config)
    if config is None:
        raise StackProblem(f"{layout.config} is gone.")
    supervisor = Supervisor(layout, config)
    supervisor.stop(APPLICATIONS, seconds=APPLICATIONS_SECONDS)
    supervisor.shutdown()
