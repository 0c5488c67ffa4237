"""REST workers for tests, each with its own token."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.access.tokens import compute_digest, generate_secret, record_use, store_token
from jobs.domain.worker_protocol import Registration
from jobs.execution import transitions
from jobs.execution.attempts import claim_attempt
from jobs.execution.transitions import Placement
from jobs.models import ApiToken, Execution, TokenScope
from tests.integration.api.conftest import API
from tests.support.factories import hold_of, make_user

STALE = "urn:punctual:stale-attempt"
LEASE_LOST = "urn:punctual:worker-lease-lost"
NAME_TAKEN = "urn:punctual:worker-name-taken"


def worker_client(owner: User | None = None) -> tuple[APIClient, ApiToken]:
    secret = generate_secret()
    # Marked as used, as `client_of` does.
    owner = owner or make_user(is_staff=True)
    record_use(store_token(owner=owner, name="worker", secret=secret, scope=TokenScope.WORKER).id)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client, ApiToken.objects.get(digest=compute_digest(secret))


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
    """A registered REST worker; claims do not wait by default."""

    client: APIClient
    registration: Registration

    @property
    def id(self) -> UUID:
        return self.registration.worker_id

    def post(self, verb: str, **body: Any) -> Any:
        body = {"incarnation": self.registration.incarnation} | body
        return self.client.post(f"{API}/workers/{self.id}/{verb}", body, format="json")

    def claim(self, *held: Execution, wait_seconds: float = 0) -> dict[str, Any]:
        response = self.post("claim", held=pairs(*held), wait_seconds=wait_seconds)
        assert response.status_code == 200, response.content
        answer: dict[str, Any] = response.json()
        return answer

    def report(self, execution: Execution, verb: str, **body: Any) -> Any:
        fence = {
            "worker_id": str(self.id),
            "incarnation": self.registration.incarnation,
            "attempt": execution.attempt,
        }
        return self.client.post(f"{API}/executions/{execution.id}/{verb}", fence | body, format="json")

    def place(self, execution: Execution) -> Execution:
        """Place the execution on this worker."""
        placed = transitions.place([Placement(execution.id, self.id, self.registration.incarnation)])
        assert len(placed) == 1
        execution.refresh_from_db()
        return execution

    def take(self, execution: Execution) -> Execution:
        """Place the execution on this worker and claim it."""
        claim_attempt(hold_of(self.place(execution)))
        return execution


def join(client: APIClient | None = None, **changes: Any) -> RestWorker:
    client = client or worker_client()[0]
    response = client.post(f"{API}/workers/register", offer(**changes), format="json")
    assert response.status_code == 201, response.content
    registered = response.json()
    return RestWorker(client, Registration(UUID(registered["worker_id"]), registered["incarnation"]))


def pairs(*held: Execution) -> list[dict[str, Any]]:
    return [{"execution_id": str(execution.id), "attempt": execution.attempt} for execution in held]


def chunk(sequence: int, data: bytes, **changes: Any) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"sequence": sequence, "stream": "stdout", "at": "2030-01-01T00:00:00Z", "base64": encoded} | changes
