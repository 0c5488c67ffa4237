"""Every example request of the schema is sent and accepted."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from jobs.access import secrets
from jobs.access.teams import create_team
from jobs.api.openapi.examples import REQUESTS, common
from jobs.dispatch.queues import create_queue
from jobs.models import ApiToken, Calendar, Secret, TokenScope
from jobs.notifications.webhooks.subscriptions import create_webhook
from tests.integration.api.conftest import API, client_of, job_body
from tests.support.factories import make_execution, make_job, make_user
from tests.support.rest_workers import RestWorker, join

STAFFS = (f"{API}/teams", f"{API}/queues")


class World(NamedTuple):
    """The objects that the examples refer to, and the client that sends them."""

    owner: APIClient
    staff: APIClient
    worker: RestWorker
    ids: dict[str, str]  # by parameter name

    def send(self, method: str, path: str, body: dict[str, Any], *, by: APIClient) -> Any:
        written = json.dumps(body)
        for example, name in (
            (common.JOB, "job_id"),
            (common.EXECUTION, "execution_id"),
            (common.WORKER, "worker_id"),
            (common.ARTIFACT, "artifact_id"),
        ):
            written = written.replace(example, self.ids[name])
        return by.generic(method, path.format_map(self.ids), written, content_type="application/json")


@pytest.fixture
def the_world(transactional_db: None, bucket: None) -> World:
    who = REQUESTS["LoginInput"]["From a laptop"]
    ada = make_user(username=who["username"], password=who["password"])
    owner, worker = client_of(ada), join()
    ApiToken.objects.filter(scope=TokenScope.WORKER).update(max_workers=2)  # the example registers another worker
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


def test_every_example_request_is_accepted(the_world: World) -> None:
    paths = SchemaGenerator().get_schema(public=True)["paths"]  # type: ignore[no-untyped-call]
    refused, taken = [], 0
    for path, operations in paths.items():
        for method, operation in operations.items():
            examples = (
                operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
            )
            for name, example in examples.items():
                body = example["value"]
                by = the_world.owner
                if operation["security"] == [{"bearerToken": ["worker"]}] or (path.endswith("/drain") and body):
                    by = the_world.worker.client
                elif path.startswith(STAFFS) or path.endswith("/drain"):
                    by = the_world.staff
                response = the_world.send(method.upper(), path, body, by=by)
                if not 200 <= response.status_code < 300:
                    refused.append(f"{method} {path}: {name}: {response.status_code} {response.content!r}")
                taken += 1
    assert refused == []
    assert taken >= sum(len(named) for named in REQUESTS.values())
