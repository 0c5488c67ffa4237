"""`stack status`: state, pid and uptime of each process."""

from __future__ import annotations

from datetime import timedelta

from scheduler_project.localstack.commands.down import is_anything_running
from scheduler_project.localstack.config import StackConfig
from scheduler_project.localstack.console import Console
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.supervisor.client import SupervisorClient


def show_status(layout: Layout, console: Console) -> bool:
    """Print the table; return whether every process is running."""
    config = StackConfig.read(layout.config) if is_anything_running(layout) else None
    if config is None:
        console.print("Nothing is running. Start it with `./punctual up`.")
        return False
    states = SupervisorClient(layout, config).states()
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
