"""Every route that changes something records one audit entry; a new route needs a case here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.access import secrets, teams
from jobs.access.tokens import generate_secret, store_token
from jobs.api.urls import urlpatterns
from jobs.definitions import lifecycle
from jobs.dispatch.queues import create_queue
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution.attempts import finish_attempt
from jobs.models import AuditEntry
from jobs.notifications.webhooks import subscriptions
from jobs.scheduling import backfill as backfilling
from jobs.scheduling import calendars
from jobs.storage.artifacts import announce_artifact
from tests.integration.api.conftest import API, job_body
from tests.support.factories import make_execution, make_job, make_output, make_schedule, make_worker, run_on

pytestmark = pytest.mark.django_db
UNSAFE = ("post", "put", "patch", "delete")
HOOK: dict[str, Any] = {"name": "chat", "url": "https://example.com/horse", "events": ["succeeded"]}
DAYS = [datetime(2026, 3, day, tzinfo=UTC) for day in (2, 3)]


@dataclass(frozen=True)
class Call:
    """A request that changes something, and the audit entry it must leave."""

    action: str
    make: Callable[[User], object]
    body: dict[str, Any] | None = None
    by_staff: bool = False
    query: str = ""
    also: frozenset[str] = frozenset()  # further actions that it records


def job(owner: User) -> object:
    return make_job(owner=owner).id


def paused_job(owner: User) -> object:
    own = make_job(owner=owner).id
    lifecycle.pause_job(own, note="")
    return own


def hourly_job(owner: User) -> object:
    return make_schedule(job=make_job(owner=owner), kind="cron", expression="0 * * * *").job_id


def backfill(owner: User) -> object:
    own = make_schedule(job=make_job(owner=owner), kind="cron", expression="0 * * * *").job_id
    return backfilling.request_backfill(own, from_at=DAYS[0], to_at=DAYS[1], by="").id


def execution(owner: User) -> object:
    return make_execution(job=make_job(owner=owner)).id


def failed(owner: User) -> object:
    own = make_execution(job=make_job(owner=owner))
    finish_attempt(run_on(make_worker(), own), RunReport(Reason.EXIT, exit_code=3))
    return own.id


def with_output(owner: User) -> object:
    own = make_execution(job=make_job(owner=owner))
    finish_attempt(run_on(make_worker(), own), RunReport(Reason.EXIT, exit_code=0))
    make_output(own.attempts.get())
    return own.id


def calendar(owner: User) -> object:
    return calendars.create_calendar(owner=owner, name="holidays", dates=[]).id


def secret(owner: User) -> object:
    return secrets.create_secret(owner=owner, name="password", value="correct horse").id


def artifact(owner: User) -> object:
    return announce_artifact(owner=owner, sha256="a" * 64, size=1).artifact.id


def team(owner: User) -> object:
    return teams.create_team(name="payments", members=[owner.username]).id


def token(owner: User) -> object:
    return store_token(owner=owner, name="another", secret=generate_secret()).id


def password(owner: User) -> None:
    owner.username = "ada"
    owner.set_password("correct horse")
    owner.save()


def webhook(owner: User) -> object:
    return subscriptions.create_webhook(owner=owner, **HOOK)[0].id


def delivery(owner: User) -> object:
    own = webhook(owner)
    return own, subscriptions.ping_webhook(UUID(str(own))).id


def queue(owner: User) -> object:
    return create_queue(name="batch").id


def worker(owner: User) -> object:
    return make_worker().worker_id


def nothing(owner: User) -> None:
    return None


CHANGES = {
    "POST jobs": Call("job.created", nothing, job_body()),
    "POST jobs/bulk": Call("job.created", nothing, {"jobs": [job_body()]}),
    "PATCH jobs/{}": Call("job.edited", job, {"name": "another"}),
    "DELETE jobs/{}": Call("job.deleted", job),
    "PUT jobs/{}/cancel": Call("job.cancelled", job),
    "POST jobs/{}/pause": Call("job.paused", job, {"note": "why"}),
    "POST jobs/{}/resume": Call("job.resumed", paused_job),
    "POST jobs/{}/execute": Call("job.executed", job),
    "POST jobs/{}/backfill": Call(
        "job.backfilled", hourly_job, {"from": DAYS[0].isoformat(), "to": DAYS[1].isoformat()}
    ),
    "PUT backfills/{}/cancel": Call("job.backfill_cancelled", backfill),
    "POST calendars": Call("calendar.created", nothing, {"name": "holidays"}),
    "PATCH calendars/{}": Call("calendar.edited", calendar, {"dates": ["2030-01-01"]}),
    "DELETE calendars/{}": Call("calendar.deleted", calendar),
    "PUT executions/{}/cancel": Call("execution.cancelled", execution),
    "POST executions/{}/retry": Call("execution.retried", failed),
    "DELETE executions/{}/outputs": Call("execution.outputs_deleted", with_output),
    "POST dead-letters/{}/redrive": Call("execution.redriven", failed),
    "POST dead-letters/{}/dismiss": Call("execution.dismissed", failed),
    "DELETE artifacts/{}": Call("artifact.deleted", artifact),
    "POST secrets": Call("secret.created", nothing, {"name": "password", "value": "correct horse"}),
    "PUT secrets/{}": Call("secret.rotated", secret, {"value": "another horse"}),
    "DELETE secrets/{}": Call("secret.deleted", secret),
    "POST teams": Call("team.created", nothing, {"name": "payments"}, by_staff=True),
    "PATCH teams/{}": Call("team.edited", team, {"members": []}, by_staff=True),
    "DELETE teams/{}": Call("team.deleted", team, by_staff=True),
    "POST tokens": Call("token.created", nothing, {"name": "laptop", "scope": "read"}),
    "DELETE tokens": Call("user.tokens_revoked", nothing, query="?all=true"),
    "DELETE tokens/{}": Call("token.revoked", token),
    "DELETE tokens/self": Call("token.revoked", nothing),
    "POST login": Call(
        "token.created",
        password,
        {"username": "ada", "password": "correct horse", "name": "laptop"},
        also=frozenset({"user.logged_in"}),
    ),
    "POST webhooks": Call("webhook.created", nothing, HOOK),
    "PATCH webhooks/{}": Call("webhook.edited", webhook, {"url": "https://example.org/horse"}),
    "DELETE webhooks/{}": Call("webhook.deleted", webhook),
    "POST webhooks/{}/rotate": Call("webhook.rotated", webhook),
    "POST webhooks/{}/ping": Call("webhook.pinged", webhook),
    "POST webhooks/{}/deliveries/{}/redeliver": Call("webhook.redelivered", delivery),
    "POST queues": Call("queue.created", nothing, {"name": "batch"}, by_staff=True),
    "PATCH queues/{}": Call("queue.edited", queue, {"paused": True}, by_staff=True),
    "DELETE queues/{}": Call("queue.deleted", queue, by_staff=True),
    "POST workers/{}/drain": Call("worker.drained", worker, by_staff=True),
}
NOT_CHANGES = {
    "POST schedules/preview": "stores nothing",
    "POST artifacts": "announces bytes; what runs them is submitted or edited",
    "POST artifacts/{}/complete": "confirms those bytes",
    "POST workers/register": "a worker's own; test_worker_tokens looks at the entry of one that is new",
    "POST workers/{}/heartbeat": "a worker's own",
    "POST workers/{}/claim": "a worker's own",
    "POST workers/{}/leave": "a worker's own",
    "POST executions/{}/start": "a worker's own; the execution has events",
    "POST executions/{}/complete": "a worker's own; the execution has events",
    "POST executions/{}/logs": "a worker's own",
    "POST executions/{}/outputs": "a worker's own",
}


def unsafe_routes() -> set[str]:
    found = set()
    for pattern in urlpatterns:
        view = getattr(pattern.callback, "view_class", None)
        address = re.sub(r"<[^>]+>", "{}", str(pattern.pattern))
        found |= {f"{method.upper()} {address}" for method in UNSAFE if hasattr(view, method)}
    return found


def test_every_unsafe_route_is_listed() -> None:
    assert unsafe_routes() == CHANGES.keys() | NOT_CHANGES.keys()


@pytest.mark.parametrize("route", CHANGES)
@pytest.mark.usefixtures("bucket")
def test_change_is_recorded_once(route: str, owner: User, client: APIClient, staff: APIClient) -> None:
    call = CHANGES[route]
    own = call.make(owner)
    before = set(AuditEntry.objects.values_list("id", flat=True))
    method, _, address = route.partition(" ")
    asking = staff if call.by_staff else client
    keys = own if isinstance(own, tuple) else (own,)
    path = f"{API}/{address.format(*keys)}{call.query}"
    response = asking.generic(method, path, **_sent(call.body))
    assert 200 <= response.status_code < 300, response.content
    entries = {entry.action: entry for entry in AuditEntry.objects.exclude(id__in=before)}
    assert entries.keys() == {call.action} | call.also
    assert AuditEntry.objects.exclude(id__in=before).count() == len(entries)
    entry = entries[call.action]
    assert entry.object_type == call.action.partition(".")[0]
    actor = User.objects.get(username=entry.actor_name)
    assert (entry.actor_id, actor.is_staff) == (actor.pk, call.by_staff)
    expected_token = "" if route == "POST login" else "test"
    assert (entry.token_name, entry.via, entry.address) == (expected_token, "api", "127.0.0.1")
    assert entry.owner_id == actor.pk
    if address.startswith(entry.object_type) and own is not None:
        assert entry.object_id == str(keys[0])
    assert "horse" not in str([entry.before, entry.after, entry.object_name]), "the value of a secret"


def _sent(body: dict[str, Any] | None) -> dict[str, Any]:
    return {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
