"""Workers that speak over HTTP, for tests: a token each, and the words that they say."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.models import ApiToken, Execution, TokenScope
from jobs.protocol import Registration
from jobs.services import transitions
from jobs.services.attempts import claim_attempt
from jobs.services.tokens import digest_of, new_secret, note_use, store_token
from jobs.services.transitions import Assignment
from tests.factories import hold_of, make_user
from tests.integration.api.conftest import API

STALE = "urn:punctual:stale-attempt"
LEASE_LOST = "urn:punctual:worker-lease-lost"
NAME_TAKEN = "urn:punctual:worker-name-taken"


def worker_client(owner: User | None = None) -> tuple[APIClient, ApiToken]:
    secret = new_secret()
    # As if used before, as `client_of` does.
    owner = owner or make_user(is_staff=True)
    note_use(store_token(owner=owner, name="worker", secret=secret, scope=TokenScope.WORKER).id)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client, ApiToken.objects.get(digest=digest_of(secret))


def offer(**changes: Any) -> dict[str, Any]:
    return {
        "name": "remote",
        "instance": str(uuid4()),
        "host": "elsewhere",
        "slots": 4,
        "cpu": 4,
        "memory_mb": 4096,
        "disk_mb": 4096,
        "capabilities": ["bash"],
    } | changes


@dataclass
class RestWorker:
    """One that has registered, and asks without waiting unless a test says so."""

    client: APIClient
    registration: Registration

    @property
    def id(self) -> UUID:
        return self.registration.worker_id

    def say(self, verb: str, **body: Any) -> Any:
        body = {"incarnation": self.registration.incarnation} | body
        return self.client.post(f"{API}/workers/{self.id}/{verb}", body, format="json")

    def ask(self, *held: Execution, wait_seconds: float = 0) -> dict[str, Any]:
        response = self.say("claim", held=pairs(*held), wait_seconds=wait_seconds)
        assert response.status_code == 200, response.content
        answer: dict[str, Any] = response.json()
        return answer

    def tell(self, execution: Execution, verb: str, **body: Any) -> Any:
        fence = {
            "worker_id": str(self.id),
            "incarnation": self.registration.incarnation,
            "attempt": execution.attempt,
        }
        return self.client.post(f"{API}/executions/{execution.id}/{verb}", fence | body, format="json")

    def place(self, execution: Execution) -> Execution:
        """Beat gives it to this worker."""
        placed = transitions.place([Assignment(execution.id, self.id, self.registration.incarnation)])
        assert len(placed) == 1
        execution.refresh_from_db()
        return execution

    def take(self, execution: Execution) -> Execution:
        """Beat gives it to this worker, which claims it."""
        claim_attempt(hold_of(self.place(execution)))
        return execution


def join(client: APIClient | None = None, **changes: Any) -> RestWorker:
    client = client or worker_client()[0]
    response = client.post(f"{API}/workers/register", offer(**changes), format="json")
    assert response.status_code == 201, response.content
    shown = response.json()
    return RestWorker(client, Registration(UUID(shown["worker_id"]), shown["incarnation"]))


def pairs(*held: Execution) -> list[dict[str, Any]]:
    return [{"execution_id": str(execution.id), "attempt": execution.attempt} for execution in held]


def chunk(sequence: int, data: bytes, **changes: Any) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"sequence": sequence, "stream": "stdout", "at": "2030-01-01T00:00:00Z", "base64": encoded} | changes
