"""`stack status`: what runs, since when."""

from __future__ import annotations

from datetime import timedelta

from scheduler_project.embedded.config import StackConfig
from scheduler_project.embedded.console import Console
from scheduler_project.embedded.control import Supervisor
from scheduler_project.embedded.down import anything_runs
from scheduler_project.embedded.layout import Layout


def show_status(layout: Layout, console: Console) -> bool:
    """Returns whether everything runs."""
    config = StackConfig.read(layout.config) if anything_runs(layout) else None
    if config is None:
        console.say("Nothing is running. Start it with `./punctual up`.")
        return False
    states = Supervisor(layout, config).states()
    console.table(
        [
            ("PROCESS", "STATE", "PID", "UPTIME"),
            *(
                (
                    state.name,
                    state.state.lower(),
                    str(state.pid) if state.pid else "-",
                    str(timedelta(seconds=max(state.uptime_seconds, 0))) if state.pid else "-",
                )
                for state in states
            ),
        ]
    )
    return all(state.is_running for state in states)
