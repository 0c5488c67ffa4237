"""Access matrix: the answer of every route and method for each kind of caller; rejections change nothing.

Made from the table of addresses: a route or a method without an entry here fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import URLPattern
from rest_framework.test import APIClient

from jobs.access.teams import create_team
from jobs.access.tokens import generate_secret, store_token
from jobs.api.urls import urlpatterns
from jobs.models import Artifact, Backfill, Calendar, Execution, Job, Queue, Secret, TokenScope
from jobs.notifications.webhooks.subscriptions import create_webhook, ping_webhook
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_execution, make_job, make_schedule, make_user
from tests.support.rest_workers import chunk, join, worker_client
from tests.support.stored import rows

METHODS = ("get", "post", "put", "patch", "delete")
PEOPLE = ("anonymous", "other", "mate", "read_token", "worker_token", "owner", "staff")


@dataclass(frozen=True)
class Rule:
    """Expected status per caller; None: permitted, with any outcome."""

    anonymous: int = 401
    other: int | None = 404
    mate: int | None = 404  # member of the team that shares the job
    worker_token: int | None = 403
    owner: int | None = None
    staff: int | None = None


OWN = Rule()  # owner only; 404 for others
TEAMS = Rule(mate=None)  # of a job: the team may read and operate it
OWNERS = Rule(mate=403)  # of a job: only the owner may edit or end it
SHARED = Rule(other=None, mate=None)  # lists of own objects, and what every user may read or create
WORKERS = Rule(other=403, mate=403, worker_token=404, owner=403, staff=403)  # the worker itself only
JOINING = Rule(other=403, mate=403, worker_token=None, owner=403, staff=403)
OPEN = Rule(anonymous=200, other=None, mate=None, worker_token=None)
DRAIN = Rule(other=403, mate=403, worker_token=404, owner=403)
LOGIN = Rule(anonymous=400, other=None, mate=None, worker_token=None)
STAFF = Rule(other=403, mate=403, owner=403)
STAFFS_TEAM = Rule(mate=403, owner=403)  # 404 for users outside the team

EXPECTED: dict[tuple[str, str], Rule] = {
    ("jobs", "get"): SHARED,
    ("jobs", "post"): SHARED,
    ("jobs/bulk", "post"): SHARED,
    ("schedules/preview", "post"): SHARED,
    ("jobs/<uuid:job_id>", "get"): TEAMS,
    ("jobs/<uuid:job_id>", "patch"): OWNERS,
    ("jobs/<uuid:job_id>", "delete"): OWNERS,
    ("jobs/<uuid:job_id>/cancel", "put"): OWNERS,
    ("jobs/<uuid:job_id>/pause", "post"): TEAMS,
    ("jobs/<uuid:job_id>/resume", "post"): TEAMS,
    ("jobs/<uuid:job_id>/execute", "post"): TEAMS,
    ("jobs/<uuid:job_id>/next", "get"): TEAMS,
    ("jobs/<uuid:job_id>/backfill", "post"): TEAMS,
    ("jobs/<uuid:job_id>/backfills", "get"): TEAMS,
    ("backfills/<uuid:backfill_id>/cancel", "put"): TEAMS,
    ("calendars", "get"): SHARED,
    ("calendars", "post"): SHARED,
    ("calendars/<uuid:calendar_id>", "get"): OWN,
    ("calendars/<uuid:calendar_id>", "patch"): OWN,
    ("calendars/<uuid:calendar_id>", "delete"): OWN,
    ("executions", "get"): SHARED,
    ("executions/<uuid:execution_id>", "get"): TEAMS,
    ("executions/<uuid:execution_id>/cancel", "put"): TEAMS,
    ("executions/<uuid:execution_id>/retry", "post"): TEAMS,
    ("executions/<uuid:execution_id>/attempts", "get"): TEAMS,
    ("executions/<uuid:execution_id>/events", "get"): TEAMS,
    ("executions/<uuid:execution_id>/explain", "get"): TEAMS,
    ("executions/<uuid:execution_id>/logs", "get"): TEAMS,
    ("executions/<uuid:execution_id>/logs", "post"): WORKERS,
    ("executions/<uuid:execution_id>/outputs", "get"): TEAMS,
    ("executions/<uuid:execution_id>/outputs", "post"): WORKERS,
    ("executions/<uuid:execution_id>/outputs", "delete"): OWNERS,
    ("executions/<uuid:execution_id>/start", "post"): WORKERS,
    ("executions/<uuid:execution_id>/complete", "post"): WORKERS,
    ("dead-letters", "get"): SHARED,
    ("dead-letters/<uuid:execution_id>/redrive", "post"): TEAMS,
    ("dead-letters/<uuid:execution_id>/dismiss", "post"): TEAMS,
    ("artifacts", "get"): SHARED,
    ("artifacts", "post"): SHARED,
    ("artifacts/<uuid:artifact_id>", "get"): OWN,
    ("artifacts/<uuid:artifact_id>", "delete"): OWN,
    ("artifacts/<uuid:artifact_id>/complete", "post"): OWN,
    ("secrets", "get"): SHARED,
    ("secrets", "post"): SHARED,
    ("secrets/<uuid:secret_id>", "get"): OWN,
    ("secrets/<uuid:secret_id>", "put"): OWN,
    ("secrets/<uuid:secret_id>", "delete"): OWN,
    ("teams", "get"): SHARED,
    ("teams", "post"): STAFF,
    ("teams/<uuid:team_id>", "get"): TEAMS,
    ("teams/<uuid:team_id>", "patch"): STAFFS_TEAM,
    ("teams/<uuid:team_id>", "delete"): STAFFS_TEAM,
    ("tokens", "get"): SHARED,
    ("tokens", "post"): SHARED,
    ("tokens", "delete"): SHARED,
    ("tokens/self", "get"): Rule(other=None, mate=None, worker_token=None),
    ("tokens/self", "delete"): Rule(other=None, mate=None, worker_token=None),
    ("tokens/<uuid:token_id>", "get"): OWN,
    ("tokens/<uuid:token_id>", "delete"): OWN,
    ("login", "post"): LOGIN,
    ("webhooks", "get"): SHARED,
    ("webhooks", "post"): SHARED,
    ("webhooks/<uuid:webhook_id>", "get"): OWN,
    ("webhooks/<uuid:webhook_id>", "patch"): OWN,
    ("webhooks/<uuid:webhook_id>", "delete"): OWN,
    ("webhooks/<uuid:webhook_id>/rotate", "post"): OWN,
    ("webhooks/<uuid:webhook_id>/ping", "post"): OWN,
    ("webhooks/<uuid:webhook_id>/deliveries", "get"): OWN,
    ("webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/redeliver", "post"): OWN,
    ("usage", "get"): SHARED,
    ("logs/search", "get"): SHARED,
    ("audit", "get"): SHARED,
    ("audit/attempts", "get"): SHARED,
    ("audit/firings", "get"): SHARED,
    ("workers", "get"): SHARED,
    ("workers/terms", "get"): JOINING,
    ("workers/register", "post"): JOINING,
    ("workers/<uuid:worker_id>", "get"): SHARED,
    ("workers/<uuid:worker_id>/heartbeat", "post"): WORKERS,
    ("workers/<uuid:worker_id>/claim", "post"): WORKERS,
    ("workers/<uuid:worker_id>/drain", "post"): DRAIN,
    ("workers/<uuid:worker_id>/leave", "post"): WORKERS,
    ("queues", "get"): SHARED,
    ("queues", "post"): STAFF,
    ("queues/<uuid:queue_id>", "get"): SHARED,
    ("queues/<uuid:queue_id>", "patch"): STAFF,
    ("queues/<uuid:queue_id>", "delete"): Rule(other=403, mate=403, owner=403, staff=409),  # it has jobs
    ("schema", "get"): OPEN,
    ("docs", "get"): OPEN,
}
# Everything but reading that the owner's token of scope read may do.
READ_TOKENS_MAY = {("schedules/preview", "post"), ("tokens/self", "delete"), ("login", "post")}


def expected_of(who: str, route: str, method: str) -> int | None:
    rule = EXPECTED[route, method]
    if who == "read_token":
        return rule.owner if method == "get" or (route, method) in READ_TOKENS_MAY else 403
    answer: int | None = getattr(rule, who)
    return answer


# Bodies that get a request as far as the ownership check.
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("jobs/<uuid:job_id>/backfill", "post"): {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"},
    ("secrets/<uuid:secret_id>", "put"): {"value": "new"},
    ("workers/<uuid:worker_id>/heartbeat", "post"): {"incarnation": 1, "held": []},
    ("workers/<uuid:worker_id>/claim", "post"): {"incarnation": 1, "held": [], "wait_seconds": 0},
    ("workers/<uuid:worker_id>/drain", "post"): {"incarnation": 1},
    ("workers/<uuid:worker_id>/leave", "post"): {"incarnation": 1},
}
# Query parameters that lead to an answer with data.
QUERIES = {("logs/search", "get"): "?q=secret", ("tokens", "delete"): "?all=true"}


def routes() -> Iterator[tuple[str, str]]:
    for pattern in urlpatterns:
        view = getattr(pattern.callback, "view_class", None) if isinstance(pattern, URLPattern) else None
        if view is None:
            continue  # the catch-all route
        for method in METHODS:
            if hasattr(view, method):
                yield str(pattern.pattern), method


ROUTES = list(routes())


@dataclass(frozen=True)
class World:
    """One object of every kind, of one owner, and a client per kind of caller."""

    ids: dict[str, UUID]
    clients: dict[str, APIClient]

    def address(self, route: str, method: str) -> str:
        query = QUERIES.get((route, method), "")
        if route.startswith("dead-letters/"):
            route = route.replace("<uuid:execution_id>", str(self.ids["letter"]))
        for name, value in self.ids.items():
            route = route.replace(f"<uuid:{name}>", str(value))
        assert "<" not in route, f"there is no object for {route}"
        return f"{API}/{route}{query}"

    def request(self, who: str, route: str, method: str) -> Any:
        body = BODIES.get((route, method), {})
        if route.startswith("executions/") and EXPECTED[route, method] == WORKERS:
            body = FENCE | {"worker_id": str(self.ids["worker_id"])} | WRITES[route.rpartition("/")[2]]
        client = self.clients[who]
        call = getattr(client, method)
        address = self.address(route, method)
        return call(address) if method == "get" else call(address, body, format="json")


SHARED_WITH_TEAM = ("job_id", "execution_id", "letter", "backfill_id", "team_id", "artifact_id")
FENCE = {"incarnation": 1, "attempt": 1}
WRITES: dict[str, dict[str, Any]] = {
    "logs": {"chunks": [chunk(0, b"x")]},
    "outputs": {"size": 1, "sha256": "0" * 64},
    "start": {},
    "complete": {"reason": "exit", "exit_code": 0},
}


@pytest.fixture
def world(owner: User, client: APIClient, stranger: APIClient, staff: APIClient, bucket: None) -> World:
    job, mate = make_job(owner=owner), make_user()
    team = create_team(name="team", members=[owner.username, mate.username])
    Job.objects.filter(id=job.id).update(team=team)
    make_schedule(job=job)
    execution, letter = make_execution(job=job), make_execution(job=job)
    worker = join(name="owned")
    worker.take(execution)
    now = datetime.now(UTC)
    Execution.objects.filter(id=letter.id).update(state="failed", reason="exit", ended_at=now, dead_letter="open")
    backfill = Backfill.objects.create(
        job=job, from_at=now - timedelta(days=1), to_at=now, requested_by="owner", expected_count=1
    )
    webhook, _ = create_webhook(owner=owner, name="hook", url="https://example.com/", events=["failed"])
    return World(
        ids={
            "job_id": job.id,
            "execution_id": execution.id,
            "letter": letter.id,
            "backfill_id": backfill.id,
            "calendar_id": Calendar.objects.create(owner=owner, name="days").id,
            "artifact_id": Artifact.objects.get(owner=owner).id,
            "secret_id": Secret.objects.create(owner=owner, name="KEY", sealed=b"x").id,
            "token_id": store_token(owner=owner, name="other", secret=generate_secret()).id,
            "webhook_id": webhook.id,
            "delivery_id": ping_webhook(webhook.id).id,
            "team_id": team.id,
            "worker_id": worker.id,
            "queue_id": Queue.objects.get(name="default").id,
        },
        clients={
            "anonymous": APIClient(),
            "other": stranger,
            "mate": client_of(mate),
            "read_token": client_of(owner, TokenScope.READ),
            "worker_token": worker_client()[0],
            "owner": client,
            "staff": staff,
        },
    )


def test_every_route_and_method_has_an_entry() -> None:
    assert set(ROUTES) == set(EXPECTED)
    assert len(ROUTES) > 40


def test_forbidden_request_is_rejected_and_changes_nothing(world: World) -> None:
    before = rows()
    assert before["jobs_job"][0] == before["jobs_worker"][0] == 1
    wrong = {}
    for route, method in ROUTES:
        for who in PEOPLE:
            expected = expected_of(who, route, method)
            if expected is None:
                continue
            status = world.request(who, route, method).status_code
            if status != expected or rows() != before:
                wrong[who, method, route] = f"{status} instead of {expected}, changed: {rows() != before}"
    assert wrong == {}


def test_permitted_request_reveals_nothing_of_others(world: World) -> None:
    """Every request starts from the same state: its changes are rolled back."""
    everybodys = {"worker_id", "queue_id"}
    owned = {str(value) for name, value in world.ids.items() if name not in everybodys}
    # A job shows its parts, but not where they come from.
    kept = owned - {str(world.ids[name]) for name in SHARED_WITH_TEAM}
    wrong = {}
    for route, method in ROUTES:
        for who in PEOPLE:
            if expected_of(who, route, method) is not None:
                continue
            with transaction.atomic():
                response = world.request(who, route, method)
                transaction.set_rollback(True)
            if response.status_code in (401, 403, 404, 405) or response.status_code >= 500:
                wrong[who, method, route] = str(response.status_code)
            hidden = kept if who == "mate" else owned if who in ("other", "worker_token") else set()
            if any(value in response.getvalue().decode() for value in hidden):
                wrong[who, method, route] = "shows what belongs to the owner"
    assert wrong == {}
