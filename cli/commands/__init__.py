"""Every command, a module each for those that belong together; a module is read when one of its commands is meant.

So this table, and nothing else, is what `--help` and the completion of a first word need.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """The line that tells of a command among the others, and the module that registers it."""

    summary: str
    module: str


SECTIONS: dict[str, dict[str, Entry]] = {
    "Jobs": {
        "submit": Entry("Submit a program as a job, to run now or on a schedule", "submit"),
        "jobs": Entry("List jobs", "jobs"),
        "show": Entry("Show all that is known of a job or of an execution", "show"),
        "run": Entry("Run a job now", "jobs"),
        "next": Entry("Show when a job runs next", "jobs"),
        "edit": Entry("Change a job", "edit"),
        "pause": Entry("Stop the schedules of a job", "jobs"),
        "resume": Entry("Go on with a job that was paused", "jobs"),
        "backfill": Entry("Run a job for past instants of its schedules", "backfill"),
        "cancel": Entry("Cancel a job and what it runs, or one execution", "jobs"),
        "delete": Entry("Delete a job", "edit"),
        "apply": Entry("Make jobs what a file says", "apply"),
        "import": Entry("Make jobs of a crontab, or of what Celery beat runs", "imports"),
    },
    "Executions": {
        "executions": Entry("List executions", "executions"),
        "logs": Entry("Print or follow the log of an execution", "executions"),
        "search": Entry("Search the logs of all executions", "search"),
        "explain": Entry("Tell why an execution waits", "explain"),
        "retry": Entry("Try an execution that has ended once more", "dead_letters"),
        "dlq": Entry("List dead letters, redrive and dismiss them", "dead_letters"),
        "outputs": Entry("List, fetch and delete the files that executions left", "outputs"),
    },
    "What jobs use": {
        "secrets": Entry("List secrets, set and delete them", "secrets"),
        "calendars": Entry("List calendars", "calendars"),
        "calendar": Entry("Print, make, change or delete a calendar", "calendars"),
        "artifacts": Entry("List uploaded programs and files, and delete them", "artifacts"),
        "webhooks": Entry("List webhooks, make, test and delete them", "webhooks"),
        "usage": Entry("Show what you use of your quotas", "artifacts"),
    },
    "The installation": {
        "workers": Entry("List workers, and drain them", "workers"),
        "queues": Entry("List queues", "queues"),
        "queue": Entry("Show, make, tune, pause or delete a queue", "queues"),
        "teams": Entry("List teams", "teams"),
        "team": Entry("Print, make, fill or delete a team", "teams"),
        "audit": Entry("Check that everything fired, and see who changed what", "audit"),
        "doctor": Entry("Check the configuration, the server and its parts", "doctor"),
        "bench": Entry("Measure how fast jobs start and end", "bench"),
    },
    "You": {
        "login": Entry("Get a token, and use that server from now on", "login"),
        "logout": Entry("Give the token back", "login"),
        "profiles": Entry("List the servers that are known, and choose one", "login"),
        "tokens": Entry("List tokens, make and revoke them", "tokens"),
        "completion": Entry("Print what a shell needs to complete words", "completion"),
    },
}
ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
