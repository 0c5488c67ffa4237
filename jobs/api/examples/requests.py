"""What people send, each by a name of its own; a server where the ids stand for something takes all of them."""

from __future__ import annotations

from jobs.api.examples.world import ARTIFACT, JOB, PROGRAM_SHA256, WORKER, Example

_NIGHTLY: Example = {
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
_AFTER_IT: Example = {
    "name": "send-report",
    "runtime": "python",
    "artifact": ARTIFACT,
    "inputs": [{"path": "data/recipients.csv", "artifact": ARTIFACT}],
    "secrets": [{"name": "smtp", "env": "SMTP_PASSWORD"}],
    "dependencies": [{"job": JOB, "condition": "success"}],
}
_ONCE: Example = {"name": "hello", "runtime": "bash", "script": "echo hello"}

REQUESTS: dict[str, dict[str, Example]] = {
    "JobInput": {"Once, now": _ONCE, "Every night": _NIGHTLY, "An uploaded program, after another job": _AFTER_IT},
    "JobsInput": {"Two at once": {"jobs": [_ONCE, {**_ONCE, "name": "hello-again", "priority": 9}]}},
    "PatchedJobEditInput": {
        "Less often, and more patient": {
            "schedules": [{"cron": "0 3 * * mon", "timezone": "Europe/Paris"}],
            "timeout_seconds": 1800,
            "retry": {"max_attempts": 5},
        }
    },
    "PauseInput": {"With a reason": {"note": "The warehouse moves until Monday."}},
    "ExecuteInput": {"On any worker": {}, "On this worker": {"worker_id": WORKER}},
    "BackfillInput": {"A week": {"from": "2025-03-01T00:00:00Z", "to": "2025-03-07T23:59:59Z"}},
    "PreviewInput": {
        "Two schedules": {
            "schedules": [{"cron": "30 2 * * *", "timezone": "America/New_York"}, {"every_seconds": 3600}],
            "count": 10,
        }
    },
    "CalendarInput": {"Days off": {"name": "holidays", "dates": ["2030-12-25", "2031-01-01"]}},
    "PatchedCalendarEditInput": {"One more": {"dates": ["2030-12-25", "2030-12-26", "2031-01-01"]}},
    "TeamInput": {"Two people": {"name": "payments", "members": ["ada", "grace"]}},
    "PatchedTeamEditInput": {"One of them": {"members": ["ada"]}},
    "QueueInput": {"For what can wait": {"name": "batch", "priority": -5, "max_concurrency": 4}},
    "PatchedQueueEditInput": {"Pause it": {"paused": True}},
    "ArtifactInput": {"A script": {"sha256": PROGRAM_SHA256, "size": 11}},
    "SecretInput": {"A password": {"name": "warehouse", "value": "tr0ub4dor-and-3"}},
    "SecretValueInput": {"Its successor": {"value": "correct-horse-battery-staple"}},
    "TokenInput": {"For a build server": {"name": "ci", "scope": "submit", "expires_in_days": 30}},
    "LoginInput": {
        "From a laptop": {
            "username": "ada",
            "password": "correct horse battery staple",
            "scope": "operate",
            "name": "laptop",
        }
    },
    "WebhookInput": {
        "Of what went wrong": {
            "name": "ci",
            "url": "https://ci.example/hooks/punctual",
            "events": ["failed", "timed_out"],
        }
    },
    "PatchedWebhookEditInput": {"Of one job only": {"job": JOB, "enabled": True}},
    "WebhookRotateInput": {"Now": {"force": True}},
}
