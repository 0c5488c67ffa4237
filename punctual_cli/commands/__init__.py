"""The table of all commands: what `--help` and completion show without importing the command modules.

Related commands share a module, which is imported when one of them runs.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """The summary of a command in the overview, and the module that registers it."""

    summary: str
    module: str


SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Jobs": {
        "submit": CommandEntry("Submit a program as a job, to run now or on a schedule", "submit"),
        "jobs": CommandEntry("List jobs", "jobs"),
        "show": CommandEntry("Show all details of a job or an execution", "jobs"),
        "run": CommandEntry("Run a job now", "jobs"),
        "next": CommandEntry("Show the next instants of a job", "jobs"),
        "edit": CommandEntry("Change a job", "edit"),
        "pause": CommandEntry("Pause the schedules of a job", "jobs"),
        "resume": CommandEntry("Resume a paused job", "jobs"),
        "backfill": CommandEntry("Run a job for past instants of its schedules", "jobs"),
        "cancel": CommandEntry("Cancel a job and its executions, or one execution", "jobs"),
        "delete": CommandEntry("Delete a job", "edit"),
        "apply": CommandEntry("Create and update jobs from a YAML file", "apply"),
        "import": CommandEntry("Import jobs from a crontab or from Celery beat", "imports"),
    },
    "Executions": {
        "executions": CommandEntry("List executions", "executions"),
        "logs": CommandEntry("Print or follow the log of an execution", "executions"),
        "search": CommandEntry("Search the logs of all executions", "executions"),
        "explain": CommandEntry("Explain why an execution is waiting", "executions"),
        "retry": CommandEntry("Retry an execution that has ended", "dead_letters"),
        "dlq": CommandEntry("List, redrive and dismiss dead letters", "dead_letters"),
        "outputs": CommandEntry("List, download and delete output files", "files"),
    },
    "Resources": {
        "secrets": CommandEntry("List, set and delete secrets", "secrets"),
        "calendars": CommandEntry("List calendars", "calendars"),
        "calendar": CommandEntry("Show, create, edit or delete a calendar", "calendars"),
        "artifacts": CommandEntry("List and delete uploaded programs and files", "files"),
        "webhooks": CommandEntry("List, create, test and delete webhooks", "webhooks"),
        "usage": CommandEntry("Show your quotas and how much of them you use", "files"),
    },
    "Installation": {
        "workers": CommandEntry("List and drain workers", "workers"),
        "queues": CommandEntry("List queues", "queues"),
        "queue": CommandEntry("Show, create, tune, pause or delete a queue", "queues"),
        "teams": CommandEntry("List teams", "teams"),
        "team": CommandEntry("Show, create, edit or delete a team", "teams"),
        "audit": CommandEntry("Verify that everything fired, and see who changed what", "audit"),
        "doctor": CommandEntry("Check the configuration, the server and its components", "doctor"),
    },
    "Account": {
        "login": CommandEntry("Get a token for a server, and use that server from now on", "login"),
        "logout": CommandEntry("Revoke the token of a server and forget it", "login"),
        "profiles": CommandEntry("List the servers you have logged in to, and switch", "login"),
        "tokens": CommandEntry("List, create and revoke API tokens", "tokens"),
        "completion": CommandEntry("Print the completion script for a shell", "completion"),
    },
}
ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
# The wrapper of a checkout runs these itself; they are listed for its help and for completion.
WRAPPER_COMMANDS = {
    "up": "Start the local stack (--detach: in the background)",
    "down": "Stop the local stack",
    "stack": "Manage the local stack: status, logs, manage",
    "worker": "Run a worker for a server on another machine",
    "test": "Run the test suite of this checkout",
}
STACK_COMMANDS = {
    "status": "Show its processes",
    "logs": "Show the logs of its processes",
    "manage": "Run a Django management command",
}
