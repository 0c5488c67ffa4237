"""A valid body for every operation with one, and one object of each kind."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access.password_marks import carry_marks
from jobs.access.secrets import create_secret
from jobs.access.teams import create_team
from jobs.dispatch.queues import create_queue
from jobs.models import ApiToken, Calendar, TokenScope
from jobs.notifications.webhooks.subscriptions import create_webhook
from tests.integration.api.conftest import API, client_of, job_body
from tests.support.factories import make_execution, make_job, make_schedule, make_user
from tests.support.rest_workers import chunk, join, offer

LONGEST_ANSWER = 64 * 1024

JOB = job_body(schedules=[{"cron": "@daily"}], requirements={"resources": {"gpu": 1}}, args=["a"], env={"A": "b"})
OF_A_RUN, OF_A_WORKER = "executions/{execution_id}/", "workers/{worker_id}/"
VALID: dict[tuple[str, str], dict[str, Any]] = {
    ("post", "artifacts"): {"sha256": "0" * 64, "size": 1},
    ("post", "calendars"): {"name": "c", "dates": ["2030-01-01"]},
    ("patch", "calendars/{calendar_id}"): {"dates": ["2030-01-01"]},
    ("post", f"{OF_A_RUN}start"): {"receipt": {"a": 1}},
    ("post", f"{OF_A_RUN}logs"): {"chunks": [chunk(0, b"x")]},
    ("post", f"{OF_A_RUN}outputs"): {"size": 1, "sha256": "0" * 64},
    ("post", f"{OF_A_RUN}complete"): {"reason": "released"},
    ("post", "jobs"): JOB,
    ("patch", "jobs/{job_id}"): {"priority": 4},
    ("post", "jobs/{job_id}/backfill"): {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"},
    ("post", "jobs/{job_id}/execute"): {},
    ("post", "jobs/{job_id}/pause"): {"note": "why"},
    ("post", "jobs/bulk"): {"jobs": [JOB]},
    ("post", "login"): {"username": "somebody", "password": "secret"},
    ("post", "schedules/preview"): {"schedules": [{"cron": "@daily"}]},
    ("post", "secrets"): {"name": "S", "value": "value"},
    ("put", "secrets/{secret_id}"): {"value": "value"},
    ("post", "teams"): {"name": "t", "members": ["somebody"]},
    ("patch", "teams/{team_id}"): {"members": ["somebody"]},
    ("post", "queues"): {"name": "q"},
    ("patch", "queues/{queue_id}"): {"priority": 1},
    ("post", "tokens"): {"name": "t", "scope": "read"},
    ("post", "webhooks"): {"name": "w", "url": "https://example.com/", "events": ["failed"]},
    ("patch", "webhooks/{webhook_id}"): {"events": ["failed"]},
    ("post", "webhooks/{webhook_id}/rotate"): {},
    ("post", "workers/register"): offer(name="new", resources={"gpu": 1}),
    ("post", f"{OF_A_WORKER}heartbeat"): {"held": []},
    ("post", f"{OF_A_WORKER}claim"): {"held": [], "wait_seconds": 0},
    ("post", f"{OF_A_WORKER}drain"): {},
    ("post", f"{OF_A_WORKER}leave"): {},
}


class OneOfEach:
    """One object of every kind that a route may name, and clients that may write to it."""

    def __init__(self, owner: User, client: APIClient, settings: Settings) -> None:
        settings.PUNCTUAL_REQUESTS_PER_MINUTE = 0
        settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast
        owner.username, former = "somebody", owner.password
        owner.set_password("secret")
        owner.save()
        carry_marks(owner, former=former)  # keeps the client's token valid
        job = make_job(owner=owner)
        schedule = make_schedule(job=job)
        webhook, _ = create_webhook(owner=owner, name="hook", url="https://example.com/", events=["failed"])
        self._worker = join(name="owned")
        ApiToken.objects.filter(scope=TokenScope.WORKER).update(max_workers=100)
        self._client, self._staff = client, client_of(make_user(is_staff=True))
        execution = self._worker.take(make_execution(job=job))
        self._ids = {
            "job_id": job.id,
            "schedule_id": schedule.id,
            "execution_id": execution.id,
            "calendar_id": Calendar.objects.create(owner=owner, name="days").id,
            "secret_id": create_secret(owner=owner, name="KEY", value="value").id,
            "webhook_id": webhook.id,
            "team_id": create_team(name="team", members=["somebody"]).id,
            "queue_id": create_queue(name="queue").id,
            "worker_id": self._worker.id,
        }
        self._status = {"incarnation": self._worker.registration.incarnation}
        self._fence = self._status | {"worker_id": str(self._worker.id), "attempt": execution.attempt}

    def valid(self, method: str, path: str) -> dict[str, Any]:
        fences: dict[str, dict[str, Any]] = {OF_A_RUN: self._fence, OF_A_WORKER: self._status}
        fence = next((fence for start, fence in fences.items() if path.startswith(start)), {})
        return fence | VALID[method, path]

    def send(self, method: str, path: str, body: str) -> Any:
        client = self._client
        if path.startswith(("workers/", "executions/")):
            client = self._worker.client
        elif path.startswith(("teams", "queues")):
            client = self._staff
        # Not `format="json"`: DRF's renderer rejects some of these values.
        return client.generic(method.upper(), self.address(path), body, content_type="application/json")

    def written(self, body: dict[str, Any]) -> str:
        """Fill in the ids that the path names."""
        text = json.dumps(body)
        for name, value in self._ids.items():
            text = text.replace(f'"{{{name}}}"', f'"{value}"')
        return text

    def address(self, path: str) -> str:
        return f"{API}/{path.format(**self._ids)}"


def refused_fields(answer: Any) -> list[str]:
    """Return the errors of a rejected request; None if it is not rejected properly."""
    proper = answer.status_code == 400 and answer["Content-Type"] == "application/problem+json"
    if not proper or len(answer.content) > LONGEST_ANSWER:
        return []
    return [error["field"] for error in answer.json()["errors"] if error["message"]]
