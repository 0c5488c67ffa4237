"""/tokens and /login: tokens are shown once, expire, can be revoked and never exceed their owner's rights."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access import login
from jobs.access.tokens import (
    compute_digest,
    find_token,
    generate_secret,
    in_force_filter,
    issue_token,
    record_use,
    revoke_token,
    revoke_tokens,
    store_token,
)
from jobs.domain import limits
from jobs.domain.errors import NotPermitted, TokenRevoked
from jobs.models import ApiToken, TokenScope
from jobs.tasks import prune_history
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_user
from tests.support.rest_workers import NAME_TAKEN, join, offer, worker_client

PASSWORD = "correct horse"


def bearer(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def make(client: APIClient, **body: Any) -> Any:
    return client.generic("POST", f"{API}/tokens", json.dumps({"name": "ci", **body}), "application/json")


def create(client: APIClient, **body: Any) -> dict[str, Any]:
    answer = make(client, **body)
    assert answer.status_code == 201, answer.content
    data: dict[str, Any] = answer.json()
    return data


def days_left(data: dict[str, Any]) -> float:
    return (datetime.fromisoformat(data["expires_at"]) - datetime.now(UTC)) / timedelta(days=1)


def test_token_is_issued_shown_once_used_and_revoked(client: APIClient, owner: User) -> None:
    answer = make(client, scope="submit")
    data = answer.json()
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    assert answer["Location"] == f"{API}/tokens/{data['id']}"
    assert (data["name"], data["owner"], data["scope"]) == ("ci", owner.username, "submit")
    assert days_left(data) == pytest.approx(90, abs=0.1)
    secret = data.pop("token")
    assert secret not in str(client.get(f"{API}/tokens").content)
    assert compute_digest(secret) not in str(client.get(f"{API}/tokens").content)

    holder = bearer(secret)
    seen = holder.get(f"{API}/tokens/self").json()
    assert (seen["id"], seen["scope"], seen["owner"]) == (data["id"], "submit", owner.username)
    assert client.get(f"{API}/tokens/{data['id']}").json()["last_used_at"] is not None
    for _ in range(2):
        assert client.delete(f"{API}/tokens/{data['id']}").status_code == 204
    refused = holder.get(f"{API}/jobs")
    assert (refused.status_code, refused["WWW-Authenticate"]) == (401, "Bearer")
    assert refused.json()["type"] == "urn:punctual:token-revoked"
    assert client.get(f"{API}/tokens/{data['id']}").json()["revoked_at"] is not None


def test_token_without_scope_only_reads(client: APIClient) -> None:
    assert create(client)["scope"] == "read"


def test_token_expiry(client: APIClient, settings: Settings) -> None:
    assert days_left(create(client, expires_in_days=3)) == pytest.approx(3, abs=0.1)
    at = (datetime.now(UTC) + timedelta(hours=5)).isoformat()
    assert days_left(create(client, expires_at=at)) == pytest.approx(5 / 24, abs=0.1)
    assert create(client, expires_at=None)["expires_at"] is None
    settings.PUNCTUAL_TOKEN_DAYS = 0
    assert create(client)["expires_at"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2400-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": None, "expires_in_days": 1}, "expires_at"),
        ({"expires_in_days": 0}, "expires_in_days"),
        ({"expires_in_days": 10**30}, "expires_in_days"),
        ({"expires_in_days": True}, "expires_in_days"),
        ({"scope": "all"}, "scope"),
        ({"scope": ["read"]}, "scope"),
        ({"pool": "far"}, "pool"),
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"name": "n" * 101}, "name"),
        ({"owner": "root"}, "owner"),
    ],
)
def test_invalid_token_input_names_field(client: APIClient, body: dict[str, Any], field: str) -> None:
    before = ApiToken.objects.count()
    answer = make(client, **body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
    assert ApiToken.objects.count() == before


def test_only_staff_issues_worker_tokens(client: APIClient, staff: APIClient) -> None:
    refused = make(client, scope="worker")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "scope")
    data = create(staff, scope="worker", pool="far")
    assert bearer(data["token"]).get(f"{API}/workers/terms").status_code == 200
    assert bearer(data["token"]).get(f"{API}/tokens/self").json()["pool"] == "far"


@pytest.mark.parametrize("all_of_them", [False, True])
def test_revoked_token_issues_no_token_in_flight(owner: User, *, all_of_them: bool) -> None:
    """A request was authenticated before its token was revoked, and issues another token afterwards."""
    admin = TokenScope.ADMIN
    issue = partial(issue_token, owner=owner, scope=admin, maker_scope=admin, expires_at=None)
    stolen, _ = issue(name="stolen")
    if all_of_them:
        assert revoke_tokens(owner, workers=True)
    else:
        assert revoke_token(stolen.id)
    with pytest.raises(TokenRevoked):
        issue(name="left behind", maker=stolen)
    assert not ApiToken.objects.filter(name="left behind").exists()


def test_token_with_limited_secrets_issues_no_worker_token(db: None) -> None:
    """A worker gets the secrets of every job it runs."""
    with pytest.raises(NotPermitted):
        issue_token(
            owner=make_user(is_staff=True),
            name="way out",
            scope=TokenScope.WORKER,
            maker_scope=TokenScope.ADMIN,
            maker_secrets=["ONE"],
            expires_at=None,
            any_pool=True,
        )


def test_tokens_of_others_are_visible_to_staff_only(client: APIClient, stranger: APIClient, staff: APIClient) -> None:
    address = f"{API}/tokens/{create(client)['id']}"
    assert stranger.get(address).status_code == 404
    assert stranger.delete(address).status_code == 404
    assert address[-36:] not in stranger.get(f"{API}/tokens").content.decode()
    assert address[-36:] in staff.get(f"{API}/tokens").content.decode()
    assert staff.delete(address).status_code == 204


def test_any_token_revokes_itself_only(owner: User) -> None:
    reader, other = client_of(owner, TokenScope.READ), client_of(owner, TokenScope.READ)
    assert reader.delete(f"{API}/tokens/self").status_code == 204
    assert (reader.get(f"{API}/jobs").status_code, other.get(f"{API}/jobs").status_code) == (401, 200)


def test_expired_token_error_names_the_remedy(owner: User) -> None:
    secret = generate_secret()
    store_token(owner=owner, name="old", secret=secret, expires_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    problem = bearer(secret).get(f"{API}/jobs").json()
    assert (problem["status"], problem["type"]) == (401, "urn:punctual:token-expired")
    assert problem["detail"] == "Your token expired on 2026-01-02 at 03:04 UTC: run punctual login for a new one."


def test_last_use_is_recorded_once_a_minute(owner: User) -> None:
    secret = generate_secret()
    token = store_token(owner=owner, name="t", secret=secret)

    def writes() -> int:
        with CaptureQueriesContext(connection) as queries:
            find_token(secret)
        return sum("UPDATE" in query["sql"] for query in queries)

    assert [writes(), writes()] == [1, 0]
    used = ApiToken.objects.get(id=token.id).last_used_at
    record_use(token.id)
    assert ApiToken.objects.get(id=token.id).last_used_at == used, "the statement itself checks the token"
    ApiToken.objects.filter(id=token.id).update(last_used_at=datetime.now(UTC) - timedelta(seconds=61))
    assert [writes(), writes()] == [1, 0]


def test_worker_name_is_free_once_its_token_is_revoked(staff: APIClient) -> None:
    client, token = worker_client()
    instance = str(uuid4())
    worker = join(client, instance=instance)
    assert worker.post("leave").status_code == 204
    other, _ = worker_client()
    taken = other.post(f"{API}/workers/register", offer(), format="json")
    assert taken.json()["type"] == NAME_TAKEN
    assert staff.delete(f"{API}/tokens/{token.id}").status_code == 204
    assert other.post(f"{API}/workers/register", offer(), format="json").status_code == 201


def test_worker_token_ends_with_owners_staff_status_and_can_revoke_itself(db: None) -> None:
    user = make_user(is_staff=True)
    client, token = worker_client(user)
    assert ApiToken.objects.filter(in_force_filter(), id=token.id).exists()
    User.objects.filter(pk=user.pk).update(is_staff=False)
    assert client.delete(f"{API}/tokens/self").status_code == 401
    assert not ApiToken.objects.filter(in_force_filter(), id=token.id).exists()
    User.objects.filter(pk=user.pk).update(is_staff=True)
    assert [client.delete(f"{API}/tokens/self").status_code for _ in range(2)] == [204, 401]


@pytest.fixture
def person(db: None, settings: Settings) -> User:
    """No failed logins are counted, and a failed login does not take its usual half second."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for key in login._redis().client.scan_iter("punctual:login:*"):
        login._redis().client.delete(key)
    return make_user(password=PASSWORD)


def log_in(username: str, password: str = PASSWORD, address: str = "192.0.2.1", **body: Any) -> Any:
    sent = json.dumps({"username": username, "password": password, **body})
    return APIClient().generic("POST", f"{API}/login", sent, "application/json", REMOTE_ADDR=address)


def test_login_returns_token(person: User) -> None:
    answer = log_in(person.username, name="cli on here", scope="operate")
    data = answer.json()
    assert (answer.status_code, answer["Cache-Control"], data["scope"]) == (201, "no-store", "operate")
    assert days_left(data) == pytest.approx(90, abs=0.1)
    assert bearer(data["token"]).get(f"{API}/tokens/self").json()["name"] == "cli on here"
    assert log_in(person.username).json()["scope"] == "admin"
    assert log_in(person.username, scope="worker").status_code == 400


def test_failed_logins_do_not_reveal_users(person: User) -> None:
    gone = make_user(password=PASSWORD, is_active=False)
    answers = [log_in(person.username, "wrong"), log_in("nobody at all"), log_in(gone.username)]
    assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}
    assert answers[0].json()["detail"] == "The user name or the password is wrong."
    assert not ApiToken.objects.filter(owner__in=[person, gone]).exists()


@pytest.mark.parametrize("body", [{"username": "a\0"}, {"username": "\ud800"}, {"password": "\ud800"}, {"password": 1}])
def test_odd_names_and_passwords_are_rejected_by_field(person: User, body: dict[str, Any]) -> None:
    answer = log_in(**({"username": person.username} | body))
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (400, list(body))


def test_failed_logins_are_limited_per_user_and_address(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS", 2)
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_ADDRESS", 4)
    assert [log_in(person.username).status_code for _ in range(4)] == [201] * 4, "successful logins do not count"
    guesses = [log_in(person.username, "wrong", "192.0.2.1") for _ in range(3)]
    assert [answer.status_code for answer in guesses] == [401, 401, 429]
    assert guesses[2].json()["type"] == "urn:punctual:too-many-logins"
    assert 1 <= int(guesses[2]["Retry-After"]) <= 60
    assert log_in(person.username, address="192.0.2.1").status_code == 429, "even with the correct password"

    spread = [log_in(f"user {n}", "wrong", f"2001:db8::{n}").status_code for n in range(5)]
    assert spread == [401, 401, 401, 401, 429], "an IPv6 network counts as one address"
    assert log_in("somebody", "wrong", "2001:db8:1::1").status_code == 401


def test_guessing_client_does_not_lock_out_others(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS", 2)
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_ADDRESS", 4)
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_USER", 4)
    assert {log_in(person.username, "wrong", "192.0.2.30").status_code for _ in range(10)} == {401, 429}
    assert log_in(person.username, address="192.0.2.31").status_code == 201
    assert log_in("somebody else", "wrong", "192.0.2.30").status_code == 401, "rejected logins did not count"


def test_distributed_guessing_is_limited_without_locking_out_the_user(
    person: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_USER", 4)
    assert log_in(person.username, address="192.0.2.77").status_code == 201
    guesses = [log_in(person.username, "wrong", f"192.0.2.{n}").status_code for n in range(40, 46)]
    assert guesses == [401, 401, 401, 401, 429, 429]
    assert log_in(person.username, address="192.0.2.50").status_code == 429
    assert [log_in(person.username, address="192.0.2.77").status_code for _ in range(3)] == [201] * 3
    assert log_in(person.username, "wrong", "192.0.2.77").status_code == 401
    assert log_in(person.username, "wrong", "192.0.2.51").status_code == 429, (
        "a successful login did not reset the count"
    )


def test_admin_logins_count_too(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS", 2)
    User.objects.filter(pk=person.pk).update(is_staff=True)

    def enter(password: str) -> Any:
        return Client().post("/admin/login/?next=/admin/", {"username": person.username, "password": password})

    assert enter(PASSWORD).status_code == 302
    assert b"Please enter the correct" in enter("wrong").content
    assert log_in(person.username, "wrong", "127.0.0.1").status_code == 401
    assert b"Too many login attempts have failed; wait" in enter(PASSWORD).content
    assert log_in(person.username, address="127.0.0.1").status_code == 429


def test_login_fails_without_redis(person: User, settings: Settings) -> None:
    settings.PUNCTUAL_REDIS_URL = "redis://127.0.0.1:1"
    login._redis.cache_clear()
    try:
        answer = log_in(person.username)
    finally:
        login._redis.cache_clear()
    assert (answer.status_code, answer.json()["status"]) == (503, 503)
    assert answer["Retry-After"]
    assert not ApiToken.objects.filter(owner=person).exists()


def test_admin_revokes_proposes_expiry_and_lets_only_superusers_issue_for_others(owner: User) -> None:
    clerk, root = Client(), Client()
    user = make_user(is_staff=True)
    clerk.force_login(user)
    root.force_login(make_user(is_staff=True, is_superuser=True))
    page = clerk.get("/admin/jobs/apitoken/add/").content.decode()
    assert f"{datetime.now(UTC) + timedelta(days=90):%Y-%m-%d}" in page

    def add(browser: Client, whose: User) -> int:
        body = {"owner": whose.pk, "name": "x", "scope": "read", "expires_at_0": "", "expires_at_1": ""}
        browser.post("/admin/jobs/apitoken/add/", body)
        return ApiToken.objects.filter(owner=whose).count()

    assert (add(clerk, owner), add(clerk, user), add(root, owner)) == (0, 1, 1)
    token = ApiToken.objects.get(owner=owner)
    body = {"action": "revoke", "_selected_action": [str(token.id)]}
    assert b"Revoked 1 token." in clerk.post("/admin/jobs/apitoken/", body, follow=True).content
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert b"Revoked 0 tokens." in clerk.post("/admin/jobs/apitoken/", body, follow=True).content


def test_admin_neither_revives_tokens_nor_exceeds_maximum_age(owner: User) -> None:
    root, now = Client(), datetime.now(UTC)
    root.force_login(make_user(is_staff=True, is_superuser=True))
    later = {"name": "x", "expires_at_0": f"{now + timedelta(days=3):%Y-%m-%d}", "expires_at_1": "00:00:00"}

    def moved(token: ApiToken, **body: str) -> bool:
        before = token.expires_at
        root.post(f"/admin/jobs/apitoken/{token.id}/change/", later | body)
        token.refresh_from_db()
        return token.expires_at != before

    def token(**fields: Any) -> ApiToken:
        return ApiToken.objects.create(owner=owner, name="x", digest=compute_digest(generate_secret()), **fields)

    good = token()
    assert moved(good)
    assert not moved(good, expires_at_0="9999-01-01")
    assert not moved(good, expires_at_0="2020-01-01")
    assert moved(good, expires_at_0="", expires_at_1="")
    assert not moved(token(expires_at=now - timedelta(days=1)))
    assert not moved(token(revoked_at=now))
    wrongs = [{"scope": "worker", "pool": ""}, {"scope": "read", "pool": "far"}, {"scope": "read", "name": "a\u202eb"}]
    for wrong in wrongs:
        root.post("/admin/jobs/apitoken/add/", later | {"owner": owner.pk, "name": "wrong"} | wrong)
    assert not ApiToken.objects.exclude(name="x").exists()


def test_long_ended_tokens_are_deleted(client: APIClient, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.db.transactions.BATCH_ROWS", 1)
    now = datetime.now(UTC)
    for days, fields in (
        (401, {"revoked_at": None}),
        (399, {"revoked_at": None}),
        (401, {"expires_at": None}),
        (399, {"expires_at": None}),
    ):
        token = store_token(owner=owner, name=f"{min(fields)} {days}", secret=generate_secret())
        ended = now - timedelta(days=days)
        ApiToken.objects.filter(id=token.id).update(**{"revoked_at": ended, "expires_at": ended} | fields)

    assert prune_history()["tokens"] == 2
    left = {each["name"] for each in client.get(f"{API}/tokens").json()["results"]}
    assert left == {"test", "revoked_at 399", "expires_at 399"}
