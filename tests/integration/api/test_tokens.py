"""/tokens and /login: one secret shown once, good until it expires or is revoked, and never for more than its owner."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs import conf
from jobs.models import ApiToken, TokenScope
from jobs.services import logins
from jobs.services.tokens import digest_of, find_token, in_force, new_secret, note_use, store_token
from jobs.tasks import prune_history
from tests.factories import make_user
from tests.integration.api.conftest import API, client_of
from tests.integration.api.rest_workers import NAME_TAKEN, join, offer, worker_client

PASSWORD = "correct horse"


def bearer(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def make(client: APIClient, **body: Any) -> Any:
    return client.generic("POST", f"{API}/tokens", json.dumps({"name": "ci", **body}), "application/json")


def made(client: APIClient, **body: Any) -> dict[str, Any]:
    answer = make(client, **body)
    assert answer.status_code == 201, answer.content
    shown: dict[str, Any] = answer.json()
    return shown


def days_left(shown: dict[str, Any]) -> float:
    return (datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC)) / timedelta(days=1)


def test_a_token_is_made_shown_once_used_and_revoked(client: APIClient, owner: User) -> None:
    answer = make(client, scope="submit")
    shown = answer.json()
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    assert answer["Location"] == f"{API}/tokens/{shown['id']}"
    assert (shown["name"], shown["owner"], shown["scope"]) == ("ci", owner.username, "submit")
    assert days_left(shown) == pytest.approx(90, abs=0.1)
    secret = shown.pop("token")
    assert secret not in str(client.get(f"{API}/tokens").content)
    assert digest_of(secret) not in str(client.get(f"{API}/tokens").content)

    mine = bearer(secret)
    seen = mine.get(f"{API}/tokens/self").json()
    assert (seen["id"], seen["scope"], seen["owner"]) == (shown["id"], "submit", owner.username)
    assert client.get(f"{API}/tokens/{shown['id']}").json()["last_used_at"] is not None
    for _ in range(2):
        assert client.delete(f"{API}/tokens/{shown['id']}").status_code == 204
    refused = mine.get(f"{API}/jobs")
    assert (refused.status_code, refused["WWW-Authenticate"]) == (401, "Bearer")
    assert refused.json()["type"] == "urn:punctual:token-revoked"
    assert client.get(f"{API}/tokens/{shown['id']}").json()["revoked_at"] is not None


def test_a_token_without_a_scope_only_reads(client: APIClient) -> None:
    assert made(client)["scope"] == "read"


def test_when_it_expires(client: APIClient, settings: Settings) -> None:
    assert days_left(made(client, expires_in_days=3)) == pytest.approx(3, abs=0.1)
    at = (datetime.now(UTC) + timedelta(hours=5)).isoformat()
    assert days_left(made(client, expires_at=at)) == pytest.approx(5 / 24, abs=0.1)
    assert made(client, expires_at=None)["expires_at"] is None
    settings.PUNCTUAL_TOKEN_DAYS = 0
    assert made(client)["expires_at"] is None


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
def test_what_cannot_be_is_named(client: APIClient, body: dict[str, Any], field: str) -> None:
    before = ApiToken.objects.count()
    answer = make(client, **body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
    assert ApiToken.objects.count() == before


def test_worker_tokens_are_for_staff_to_make(client: APIClient, staff: APIClient) -> None:
    refused = make(client, scope="worker")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "scope")
    shown = made(staff, scope="worker", pool="far")
    assert bearer(shown["token"]).get(f"{API}/workers/terms").status_code == 200
    assert bearer(shown["token"]).get(f"{API}/tokens/self").json()["pool"] == "far"


def test_tokens_of_others_are_not_there_but_for_staff(client: APIClient, stranger: APIClient, staff: APIClient) -> None:
    address = f"{API}/tokens/{made(client)['id']}"
    assert stranger.get(address).status_code == 404
    assert stranger.delete(address).status_code == 404
    assert address[-36:] not in stranger.get(f"{API}/tokens").content.decode()
    assert address[-36:] in staff.get(f"{API}/tokens").content.decode()
    assert staff.delete(address).status_code == 204


def test_any_holder_gives_up_a_token_and_only_that_one(owner: User) -> None:
    reader, other = client_of(owner, TokenScope.READ), client_of(owner, TokenScope.READ)
    assert reader.delete(f"{API}/tokens/self").status_code == 204
    assert (reader.get(f"{API}/jobs").status_code, other.get(f"{API}/jobs").status_code) == (401, 200)


def test_an_expired_token_says_when_and_what_to_do(owner: User) -> None:
    secret = new_secret()
    store_token(owner=owner, name="old", secret=secret, expires_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    problem = bearer(secret).get(f"{API}/jobs").json()
    assert (problem["status"], problem["type"]) == (401, "urn:punctual:token-expired")
    assert problem["detail"] == "Your token expired on 2026-01-02 at 03:04 UTC: run punctual login for a new one."


def test_use_is_noted_once_a_minute(owner: User) -> None:
    secret = new_secret()
    token = store_token(owner=owner, name="t", secret=secret)

    def writes() -> int:
        with CaptureQueriesContext(connection) as queries:
            find_token(secret)
        return sum("UPDATE" in query["sql"] for query in queries)

    assert [writes(), writes()] == [1, 0]
    used = ApiToken.objects.get(id=token.id).last_used_at
    note_use(token.id)
    assert ApiToken.objects.get(id=token.id).last_used_at == used, "the statement looks for itself"
    ApiToken.objects.filter(id=token.id).update(last_used_at=datetime.now(UTC) - timedelta(seconds=61))
    assert [writes(), writes()] == [1, 0]


def test_the_name_of_a_worker_is_free_once_its_token_is_revoked(staff: APIClient) -> None:
    client, token = worker_client()
    instance = str(uuid4())
    worker = join(client, instance=instance)
    assert worker.say("leave").status_code == 204
    other, _ = worker_client()
    taken = other.post(f"{API}/workers/register", offer(), format="json")
    assert taken.json()["type"] == NAME_TAKEN
    assert staff.delete(f"{API}/tokens/{token.id}").status_code == 204
    assert other.post(f"{API}/workers/register", offer(), format="json").status_code == 201


def test_a_workers_token_ends_with_its_owners_staff_rights_and_may_give_itself_up(db: None) -> None:
    user = make_user(is_staff=True)
    client, token = worker_client(user)
    assert ApiToken.objects.filter(in_force(), id=token.id).exists()
    User.objects.filter(pk=user.pk).update(is_staff=False)
    assert client.delete(f"{API}/tokens/self").status_code == 401
    assert not ApiToken.objects.filter(in_force(), id=token.id).exists()
    User.objects.filter(pk=user.pk).update(is_staff=True)
    assert [client.delete(f"{API}/tokens/self").status_code for _ in range(2)] == [204, 401]


@pytest.fixture
def person(db: None, settings: Settings) -> User:
    """Nobody has tried to log in yet, and a try takes less than the half second that it should."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for key in logins._redis().client.scan_iter("punctual:login:*"):
        logins._redis().client.delete(key)
    return make_user(password=PASSWORD)


def log_in(username: str, password: str = PASSWORD, address: str = "192.0.2.1", **body: Any) -> Any:
    sent = json.dumps({"username": username, "password": password, **body})
    return APIClient().generic("POST", f"{API}/login", sent, "application/json", REMOTE_ADDR=address)


def test_a_password_gives_a_token(person: User) -> None:
    answer = log_in(person.username, name="cli on here", scope="operate")
    shown = answer.json()
    assert (answer.status_code, answer["Cache-Control"], shown["scope"]) == (201, "no-store", "operate")
    assert days_left(shown) == pytest.approx(90, abs=0.1)
    assert bearer(shown["token"]).get(f"{API}/tokens/self").json()["name"] == "cli on here"
    assert log_in(person.username).json()["scope"] == "admin"
    assert log_in(person.username, scope="worker").status_code == 400


def test_refusals_tell_nothing(person: User) -> None:
    gone = make_user(password=PASSWORD, is_active=False)
    answers = [log_in(person.username, "wrong"), log_in("nobody at all"), log_in(gone.username)]
    assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}
    assert answers[0].json()["detail"] == "The user name or the password is wrong."
    assert not ApiToken.objects.filter(owner__in=[person, gone]).exists()


@pytest.mark.parametrize("body", [{"username": "a\0"}, {"username": "\ud800"}, {"password": "\ud800"}, {"password": 1}])
def test_odd_names_and_passwords_are_refused_by_field(person: User, body: dict[str, Any]) -> None:
    answer = log_in(**({"username": person.username} | body))
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (400, list(body))


def test_guessing_is_slowed_down_for_a_user_and_for_an_address(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "LOGIN_TRIES_A_USER_AND_ADDRESS", 2)
    monkeypatch.setattr(conf, "LOGIN_TRIES_AN_ADDRESS", 4)
    assert [log_in(person.username).status_code for _ in range(4)] == [201] * 4, "what succeeds does not count"
    guesses = [log_in(person.username, "wrong", "192.0.2.1") for _ in range(3)]
    assert [answer.status_code for answer in guesses] == [401, 401, 429]
    assert guesses[2].json()["type"] == "urn:punctual:too-many-logins"
    assert 1 <= int(guesses[2]["Retry-After"]) <= 60
    assert log_in(person.username, address="192.0.2.1").status_code == 429, "also with the right password"

    spread = [log_in(f"user {n}", "wrong", f"2001:db8::{n}").status_code for n in range(5)]
    assert spread == [401, 401, 401, 401, 429], "a network of the longer kind is one address"
    assert log_in("somebody", "wrong", "2001:db8:1::1").status_code == 401


def test_one_who_guesses_holds_up_nobody_elsewhere(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "LOGIN_TRIES_A_USER_AND_ADDRESS", 2)
    monkeypatch.setattr(conf, "LOGIN_TRIES_AN_ADDRESS", 4)
    monkeypatch.setattr(conf, "LOGIN_TRIES_A_USER", 4)
    assert {log_in(person.username, "wrong", "192.0.2.30").status_code for _ in range(10)} == {401, 429}
    assert log_in(person.username, address="192.0.2.31").status_code == 201
    assert log_in("somebody else", "wrong", "192.0.2.30").status_code == 401, "what was refused did not count"


def test_many_who_guess_together_are_slowed_down_and_do_not_lock_the_user_out(
    person: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf, "LOGIN_TRIES_A_USER", 4)
    assert log_in(person.username, address="192.0.2.77").status_code == 201
    guesses = [log_in(person.username, "wrong", f"192.0.2.{n}").status_code for n in range(40, 46)]
    assert guesses == [401, 401, 401, 401, 429, 429]
    assert log_in(person.username, address="192.0.2.50").status_code == 429
    assert [log_in(person.username, address="192.0.2.77").status_code for _ in range(3)] == [201] * 3
    assert log_in(person.username, "wrong", "192.0.2.77").status_code == 401
    assert log_in(person.username, "wrong", "192.0.2.51").status_code == 429, "who was let in took no guess back"


def test_guessing_in_the_admin_counts_as_well(person: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "LOGIN_TRIES_A_USER_AND_ADDRESS", 2)
    User.objects.filter(pk=person.pk).update(is_staff=True)

    def enter(password: str) -> Any:
        return Client().post("/admin/login/?next=/admin/", {"username": person.username, "password": password})

    assert enter(PASSWORD).status_code == 302
    assert b"Please enter the correct" in enter("wrong").content
    assert log_in(person.username, "wrong", "127.0.0.1").status_code == 401
    assert b"Too many tries to log in have failed; wait" in enter(PASSWORD).content
    assert log_in(person.username, address="127.0.0.1").status_code == 429


def test_nobody_logs_in_uncounted(person: User, settings: Settings) -> None:
    settings.PUNCTUAL_REDIS_URL = "redis://127.0.0.1:1"
    logins._redis.cache_clear()
    try:
        answer = log_in(person.username)
    finally:
        logins._redis.cache_clear()
    assert (answer.status_code, answer.json()["status"]) == (503, 503)
    assert answer["Retry-After"]
    assert not ApiToken.objects.filter(owner=person).exists()


def test_the_admin_revokes_and_proposes_an_expiry_and_only_a_superuser_makes_tokens_of_others(owner: User) -> None:
    clerk, root = Client(), Client()
    user = make_user(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["add_apitoken", "change_apitoken", "view_user"]))
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


def test_the_admin_revives_no_token_and_lets_none_live_too_long(owner: User) -> None:
    root, now = Client(), datetime.now(UTC)
    root.force_login(make_user(is_staff=True, is_superuser=True))
    later = {"name": "x", "expires_at_0": f"{now + timedelta(days=3):%Y-%m-%d}", "expires_at_1": "00:00:00"}

    def moved(token: ApiToken, **body: str) -> bool:
        before = token.expires_at
        root.post(f"/admin/jobs/apitoken/{token.id}/change/", later | body)
        token.refresh_from_db()
        return token.expires_at != before

    def token(**fields: Any) -> ApiToken:
        return ApiToken.objects.create(owner=owner, name="x", digest=digest_of(new_secret()), **fields)

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


def test_what_has_been_over_for_long_leaves_the_list(
    client: APIClient, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.services.database.BATCH_ROWS", 1)
    now = datetime.now(UTC)
    for days, fields in (
        (401, {"revoked_at": None}),
        (399, {"revoked_at": None}),
        (401, {"expires_at": None}),
        (399, {"expires_at": None}),
    ):
        token = store_token(owner=owner, name=f"{min(fields)} {days}", secret=new_secret())
        ended = now - timedelta(days=days)
        ApiToken.objects.filter(id=token.id).update(**{"revoked_at": ended, "expires_at": ended} | fields)

    assert prune_history()["tokens"] == 2
    left = {each["name"] for each in client.get(f"{API}/tokens").json()["results"]}
    assert left == {"test", "revoked_at 399", "expires_at 399"}
