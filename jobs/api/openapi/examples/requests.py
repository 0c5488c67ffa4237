"""Named example requests; all of them are valid where their ids exist."""

from __future__ import annotations

from jobs.api.openapi.examples.common import ARTIFACT, JOB, PROGRAM_SHA256, WORKER, Example

_NIGHTLY_JOB: Example = {
    "name": "nightly-report",
    "runtime": "python",
    "script": "import sys\nprint('report of', sys.argv[2])\n",
    "args": ["--region", "eu"],
    "env": {"FORMAT": "csv"},
    "schedules": [{"cron": "0 3 * * *", "timezone": "Europe/Paris", "excluded_dates": ["2030-12-25"]}],
    "requirements": {"cpu": 0.5, "memory_mb": 256},
    "timeout_seconds": 600,
    "retry": {"max_attempts": 3, "backoff_seconds": 5, "backoff_factor": 2},
}
_DEPENDENT_JOB: Example = {
    "name": "send-report",
    "runtime": "python",
    "artifact": ARTIFACT,
    "inputs": [{"path": "data/recipients.csv", "artifact": ARTIFACT}],
    "secrets": [{"name": "smtp", "env": "SMTP_PASSWORD"}],
    "dependencies": [{"job": JOB, "condition": "success"}],
}
_ONE_OFF_JOB: Example = {"name": "hello", "runtime": "bash", "script": "echo hello"}

REQUESTS: dict[str, dict[str, Example]] = {
    "JobInput": {
        "Run once, now": _ONE_OFF_JOB,
        "Run every night": _NIGHTLY_JOB,
        "Run an uploaded program after another job": _DEPENDENT_JOB,
    },
    "JobsInput": {"Two jobs": {"jobs": [_ONE_OFF_JOB, {**_ONE_OFF_JOB, "name": "hello-again", "priority": 9}]}},
    "PatchedJobEditInput": {
        "Run weekly with a longer timeout": {
            "schedules": [{"cron": "0 3 * * mon", "timezone": "Europe/Paris"}],
            "timeout_seconds": 1800,
            "retry": {"max_attempts": 5},
        }
    },
    "PauseInput": {"With a reason": {"note": "The warehouse moves until Monday."}},
    "ExecuteInput": {"On any worker": {}, "On one worker": {"worker_id": WORKER}},
    "BackfillInput": {"A week": {"from": "2025-03-01T00:00:00Z", "to": "2025-03-07T23:59:59Z"}},
    "PreviewInput": {
        "Two schedules": {
            "schedules": [{"cron": "30 2 * * *", "timezone": "America/New_York"}, {"every_seconds": 3600}],
            "count": 10,
        }
    },
    "CalendarInput": {"Holidays": {"name": "holidays", "dates": ["2030-12-25", "2031-01-01"]}},
    "PatchedCalendarEditInput": {"Add a date": {"dates": ["2030-12-25", "2030-12-26", "2031-01-01"]}},
    "TeamInput": {"Two members": {"name": "payments", "members": ["ada", "grace"]}},
    "PatchedTeamEditInput": {"Remove a member": {"members": ["ada"]}},
    "QueueInput": {"Low-priority queue": {"name": "batch", "priority": -5, "max_concurrency": 4}},
    "PatchedQueueEditInput": {"Pause a queue": {"paused": True}},
    "ArtifactInput": {"A script": {"sha256": PROGRAM_SHA256, "size": 11}},
    "SecretInput": {"A password": {"name": "warehouse", "value": "tr0ub4dor-and-3"}},
    "SecretValueInput": {"A new password": {"value": "correct-horse-battery-staple"}},
    "TokenInput": {
        "For a build server": {"name": "ci", "scope": "submit", "expires_in_days": 30},
        "For jobs that send mail": {"name": "ci-mail", "scope": "submit", "secrets": ["smtp"]},
    },
    "LoginInput": {
        "From a laptop": {
            "username": "ada",
            "password": "correct horse battery staple",
            "scope": "operate",
            "name": "laptop",
        }
    },
    "WebhookInput": {
        "Notify about failures": {
            "name": "ci",
            "url": "https://ci.example/hooks/punctual",
            "events": ["failed", "timed_out"],
        }
    },
    "PatchedWebhookEditInput": {"Restrict to one job": {"job": JOB, "enabled": True}},
    "WebhookRotateInput": {"Rotate again at once": {"force": True}},
}
