"""Every example of a request is one that the API takes: each is really sent, by whom it is meant for, in turn."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from jobs.api.examples import REQUESTS, world
from jobs.models import Calendar, Secret
from jobs.services import secrets
from jobs.services.queues import create_queue
from jobs.services.teams import create_team
from jobs.services.webhooks import create_webhook
from tests.factories import make_execution, make_job, make_user
from tests.integration.api.conftest import API, client_of, job_body
from tests.integration.api.rest_workers import RestWorker, join

STAFFS = (f"{API}/teams", f"{API}/queues")


class World(NamedTuple):
    """All that the examples speak of, of the one who sends them."""

    owner: APIClient
    staff: APIClient
    worker: RestWorker
    ids: dict[str, str]  # what the address calls it

    def send(self, method: str, path: str, body: dict[str, Any], *, by: APIClient) -> Any:
        written = json.dumps(body)
        for example, name in (
            (world.JOB, "job_id"),
            (world.EXECUTION, "execution_id"),
            (world.WORKER, "worker_id"),
            (world.ARTIFACT, "artifact_id"),
        ):
            written = written.replace(example, self.ids[name])
        return by.generic(method, path.format_map(self.ids), written, content_type="application/json")


@pytest.fixture
def the_world(transactional_db: None, bucket: None) -> World:
    who = REQUESTS["LoginInput"]["From a laptop"]
    ada = make_user(username=who["username"], password=who["password"])
    owner, worker = client_of(ada), join()
    run = worker.take(make_execution(job=make_job(owner=ada)))
    submitted = owner.post(f"{API}/jobs", job_body(schedules=[{"cron": "0 3 * * *"}]), format="json").json()
    worker.place(make_execution(job=make_job(owner=ada)))
    make_user(username="grace")
    secrets.create_secret(owner=ada, name="smtp", value="a password")
    webhook, _ = create_webhook(owner=ada, name="hook", url="https://hooks.invalid/", events=["failed"], job_id=None)
    ids = {
        "job_id": submitted["id"],
        "artifact_id": submitted["artifact"],
        "execution_id": str(run.id),
        "worker_id": str(worker.id),
        "calendar_id": str(Calendar.objects.create(owner=ada, name="calendar", dates=[]).id),
        "secret_id": str(Secret.objects.get().id),
        "webhook_id": str(webhook.id),
        "team_id": str(create_team(name="team", members=["ada"]).id),
        "queue_id": str(create_queue(name="queue").id),
    }
    return World(owner, client_of(make_user(is_staff=True)), worker, ids)


def test_every_example_of_a_request_is_taken(the_world: World) -> None:
    paths = SchemaGenerator().get_schema(public=True)["paths"]  # type: ignore[no-untyped-call]
    refused, taken = [], 0
    for path, operations in paths.items():
        for method, said in operations.items():
            examples = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
            for name, example in examples.items():
                body = example["value"]
                by = the_world.owner
                if said["security"] == [{"bearerToken": ["worker"]}] or (path.endswith("/drain") and body):
                    by = the_world.worker.client
                elif path.startswith(STAFFS) or path.endswith("/drain"):
                    by = the_world.staff
                response = the_world.send(method.upper(), path, body, by=by)
                if not 200 <= response.status_code < 300:
                    refused.append(f"{method} {path}: {name}: {response.status_code} {response.content!r}")
                taken += 1
    assert refused == []
    assert taken >= sum(len(named) for named in REQUESTS.values())
