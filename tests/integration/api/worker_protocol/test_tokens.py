"""Worker tokens: limited to a number of workers and a pool; new workers are audited."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access import rate_limit
from jobs.access.tokens import compute_digest
from jobs.db import wakeups
from jobs.domain import limits
from jobs.fleet.leases import deregister_worker
from jobs.models import ApiToken, AuditEntry, Worker
from tests.integration.api.access.test_tokens import bearer, create, days_left, make
from tests.integration.api.conftest import API
from tests.support.factories import make_user
from tests.support.rest_workers import join, offer, worker_client

LIMIT = "urn:punctual:worker-limit"

pytestmark = pytest.mark.django_db


def register(client: APIClient, **changes: Any) -> tuple[int, str | None]:
    response = client.post(f"{API}/workers/register", offer(**changes), format="json")
    return response.status_code, response.json().get("type")


def test_token_admits_next_worker_only_after_the_first_left() -> None:
    client, _ = worker_client()
    first = join(client, name="one", instance=str(uuid4()))
    assert register(client, name="two") == (409, LIMIT)
    assert not Worker.objects.filter(name="two").exists()
    again = join(client, name="one", instance=str(Worker.objects.get().instance))
    assert again.id == first.id, "the same worker, restarted"
    deregister_worker(again.registration)
    second = join(client, name="two")
    assert register(client, name="one") == (409, LIMIT), "the limit is reached"
    Worker.objects.filter(id=second.id).update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    assert register(client, name="one")[0] == 201


def test_new_token_of_owner_takes_name_of_gone_worker() -> None:
    """As after a machine was replaced: token and instance directory are gone."""
    owner = make_user(is_staff=True)
    gone = join(worker_client(owner)[0])
    client, token = worker_client(owner)

    def refusal() -> str:
        return str(client.post(f"{API}/workers/register", offer(), format="json").json()["detail"])

    assert "Another worker called remote is alive: stop it" in refusal()
    deregister_worker(gone.registration)
    Worker.objects.update(pool="elsewhere")
    assert "use a token of the same owner and pool" in refusal()
    Worker.objects.update(pool="default")
    successor = join(client)
    assert (successor.id, successor.registration.incarnation) == (gone.id, gone.registration.incarnation + 1)
    assert Worker.objects.get().token_id == token.id


def test_name_of_gone_worker_is_free_once_its_token_expired() -> None:
    client, token = worker_client()
    deregister_worker(join(client).registration)
    other, _ = worker_client()
    assert register(other)[0] == 409
    ApiToken.objects.filter(id=token.id).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert register(other)[0] == 201


def test_registrations_per_token_are_rate_limited(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WORKER_REGISTRATIONS_A_MINUTE", 2)
    patient = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(rate_limit, "best_effort_redis", lambda: patient)
    client, _ = worker_client()
    for name in ("one", "two"):
        deregister_worker(join(client, name=name).registration)
    refused = client.post(f"{API}/workers/register", offer(name="three"), format="json")
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 30
    assert "limit of 2 registrations a minute" in refused.json()["detail"]
    assert not Worker.objects.filter(name="three").exists()
    several, token = worker_client()
    ApiToken.objects.filter(id=token.id).update(max_workers=2)
    assert [register(several, name=f"of-{n}")[0] for n in range(2)] == [201, 201], "another token is not limited"
    assert [register(several, name=f"of-{n}")[0] for n in (2, 3, 4)] == [409, 409, 429], "twice as many for two workers"


def test_token_admits_max_workers(staff: APIClient) -> None:
    client = bearer(create(staff, scope="worker", pool="default", max_workers=2)["token"])
    assert [register(client, name=name)[0] for name in "abc"] == [201, 201, 409]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "worker"}, "pool"),
        ({"scope": "worker", "pool": ""}, "pool"),
        ({"scope": "worker", "any_pool": False}, "pool"),
        ({"scope": "worker", "pool": "far", "any_pool": True}, "any_pool"),
        ({"scope": "worker", "any_pool": True, "max_workers": 0}, "max_workers"),
        ({"scope": "worker", "any_pool": True, "max_workers": 1001}, "max_workers"),
        ({"scope": "read", "any_pool": True}, "any_pool"),
        ({"scope": "read", "max_workers": 1}, "max_workers"),
    ],
)
def test_invalid_worker_token_names_field(staff: APIClient, body: dict[str, Any], field: str) -> None:
    answer = make(staff, **body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)


def test_worker_token_expires_after_a_year_by_default(staff: APIClient, settings: Settings) -> None:
    data = create(staff, scope="worker", any_pool=True)
    assert days_left(data) == pytest.approx(365, abs=0.1)
    assert (data["any_pool"], data["max_workers"]) == (True, 1)
    assert create(staff, scope="worker", pool="far", expires_at=None)["expires_at"] is None
    settings.PUNCTUAL_WORKER_TOKEN_DAYS = 0
    assert create(staff, scope="worker", pool="far")["expires_at"] is None
    data = create(staff)
    assert (data["any_pool"], data["max_workers"]) == (None, None)


def test_terms_include_token_expiry() -> None:
    client, token = worker_client()
    assert client.get(f"{API}/workers/terms").json()["token_expires_at"] is None
    until = datetime.now(UTC) + timedelta(days=3)
    ApiToken.objects.filter(id=token.id).update(expires_at=until)
    token_expiry = client.get(f"{API}/workers/terms").json()["token_expires_at"]
    assert datetime.fromisoformat(token_expiry) == until


def test_command_requires_pool_and_defaults_to_a_year() -> None:
    owner = make_user(is_staff=True)

    def create(*options: str) -> ApiToken:
        out = StringIO()
        call_command("create_worker_token", "--owner", owner.username, *options, stdout=out)
        return ApiToken.objects.get(digest=compute_digest(out.getvalue().strip()))

    with pytest.raises(CommandError, match="--any-pool"):
        create()
    with pytest.raises(CommandError, match="--any-pool"):
        create("--pool", "far", "--any-pool")
    with pytest.raises(CommandError, match="--days"):
        create("--any-pool", "--days", "3", "--never-expires")
    token = create("--any-pool", "--max-workers", "3")
    assert (token.pool, token.max_workers) == ("", 3)
    assert token.expires_at is not None
    assert (token.expires_at - datetime.now(UTC)).days in (364, 365)
    assert create("--pool", "far", "--never-expires").expires_at is None


def test_admin_requires_pool_for_worker_token() -> None:
    admin, root = Client(), make_user(is_staff=True, is_superuser=True)
    admin.force_login(root)

    def add(**more: object) -> int:
        body = {"owner": root.pk, "name": "x", "scope": "worker", "max_workers": "1", **more}
        admin.post("/admin/jobs/apitoken/add/", body)
        return ApiToken.objects.count()

    assert [add(), add(pool="far"), add(any_pool="on", max_workers="2")] == [0, 1, 2]
    assert ApiToken.objects.get(pool="").max_workers == 2


def test_new_worker_is_audited_and_restart_is_not() -> None:
    client, token = worker_client()
    instance = str(uuid4())
    worker = join(client, name="one", instance=instance, slots=3, pool="far")
    entry = AuditEntry.objects.get(action="worker.registered")
    assert (entry.object_id, entry.object_name, entry.owner_id) == (str(worker.id), "one", token.owner_id)
    assert (entry.token_id, entry.address) == (token.id, "127.0.0.1")
    assert (entry.after["pool"], entry.after["slots"], entry.after["host"]) == ("far", 3, "elsewhere")

    join(client, name="one", instance=instance, slots=3, pool="far")
    assert AuditEntry.objects.count() == 1, "a restart changes nothing"
    body = offer(name="one", instance=instance, slots=3, pool="far")
    client.post(f"{API}/workers/register", body, format="json", REMOTE_ADDR="192.0.2.9")
    moved = AuditEntry.objects.latest("id")
    assert (moved.before, moved.after) == ({"address": "127.0.0.1"}, {"address": "192.0.2.9"})
