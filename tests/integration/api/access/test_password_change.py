"""Password changes end the user's API tokens, and every user may change their own password."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.management.commands import changepassword
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models.functions import Now
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access import login
from jobs.domain import limits
from jobs.models import ApiToken, AuditEntry
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_user
from tests.support.rest_workers import worker_client

OLD, NEW = "correct horse battery", "staple donkey lorry"
MD5 = "django.contrib.auth.hashers.MD5PasswordHasher"
PBKDF2 = "django.contrib.auth.hashers.PBKDF2PasswordHasher"
PAGE = "/account/password"

Change = Callable[[User, pytest.MonkeyPatch], None]


@pytest.fixture
def ann(db: None, settings: Settings) -> User:
    settings.PASSWORD_HASHERS = [MD5, PBKDF2]
    for key in login._redis().client.scan_iter("punctual:login:*"):
        login._redis().client.delete(key)
    return make_user(password=OLD)


def browser_of(user: User) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


def change_own(browser: Client, old: str = OLD, new: str = NEW, page: str = PAGE) -> Any:
    return browser.post(page, {"old_password": old, "new_password1": new, "new_password2": new})


def on_the_own_page(user: User, _: pytest.MonkeyPatch) -> None:
    assert change_own(browser_of(user)).status_code == 302


def in_the_admin_by_oneself(user: User, _: pytest.MonkeyPatch) -> None:
    assert change_own(browser_of(user), page="/admin/password_change/").status_code == 302


def in_the_admin_by_a_superuser(user: User, _: pytest.MonkeyPatch) -> None:
    root = browser_of(make_user(is_staff=True, is_superuser=True))
    body = {"password1": NEW, "password2": NEW, "usable_password": "true"}
    assert root.post(f"/admin/auth/user/{user.pk}/password/", body).status_code == 302


def by_the_command_of_django(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changepassword.Command, "_get_pass", lambda *args, **kwargs: NEW)
    call_command("changepassword", user.username, stdout=StringIO())


def by_an_operator_in_a_shell(user: User, _: pytest.MonkeyPatch) -> None:
    user.set_password(NEW)
    user.save()


@pytest.mark.parametrize(
    "change",
    [
        on_the_own_page,
        in_the_admin_by_oneself,
        in_the_admin_by_a_superuser,
        by_the_command_of_django,
        by_an_operator_in_a_shell,
    ],
    ids=lambda change: change.__name__,
)
def test_password_change_revokes_all_but_worker_tokens(
    ann: User, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    User.objects.filter(pk=ann.pk).update(is_staff=True)
    ann.refresh_from_db()
    client, (worker, _) = client_of(ann), worker_client(ann)
    assert client.get(f"{API}/jobs").status_code == 200
    change(ann, monkeypatch)
    assert User.objects.get(pk=ann.pk).check_password(NEW)
    refused = client.get(f"{API}/jobs")
    assert (refused.status_code, refused.json()["type"]) == (401, "urn:punctual:token-revoked")
    assert "password" in refused.json()["detail"]
    assert worker.get(f"{API}/workers/terms").status_code == 200
    ann.refresh_from_db()
    data = client_of(ann).get(f"{API}/tokens").json()["results"]
    assert {(token["scope"], token["in_force"]) for token in data} == {
        ("admin", True), ("worker", True), ("admin", False),
    }  # fmt: skip


def test_non_staff_changes_password_and_keeps_only_this_session(ann: User) -> None:
    here, elsewhere = browser_of(ann), browser_of(ann)
    client = client_of(ann)
    for way in ("/login", f"{API}/docs"):
        assert f'href="{PAGE}"' in here.get(way).content.decode(), "redirected after login"
    page = here.get(PAGE).content.decode()
    assert "Old password" in page
    assert 'href="/admin/' not in page, "not staff"

    done = change_own(here)
    assert (done.status_code, done["Location"]) == (302, "/login")
    page = here.get("/login").content.decode()
    assert "Your password was changed" in page
    assert "worker token" not in page, "there is none"
    assert here.get(f"{API}/jobs").status_code == 200
    assert elsewhere.get(f"{API}/jobs").status_code == 401
    assert client.get(f"{API}/jobs").status_code == 401
    edited, ended = (AuditEntry.objects.get(action=f"user.{what}") for what in ("edited", "tokens_ended"))
    assert {(each.object_id, each.actor_id) for each in (edited, ended)} == {(str(ann.pk), ann.pk)}
    assert edited.after == {"password": "(hidden)"}
    assert ended.after == {"tokens": 1, "because": "password changed"}


@pytest.mark.parametrize(
    ("count", "message"), [(1, "1 worker token of yours stays"), (2, "2 worker tokens of yours stay")]
)
def test_page_mentions_number_of_remaining_worker_tokens(ann: User, count: int, message: str) -> None:
    User.objects.filter(pk=ann.pk).update(is_staff=True)
    issued = [worker_client(ann)[1] for _ in range(count + 1)]
    ApiToken.objects.filter(pk=issued[0].pk).update(revoked_at=Now())
    browser = browser_of(ann)
    change_own(browser)
    assert message in browser.get("/login").content.decode()


def test_page_requires_old_password_and_valid_new_one(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS", 2)
    browser, client = browser_of(ann), client_of(ann)
    assert "too short" in change_own(browser, new="abc").content.decode()
    assert "too common" in change_own(browser, new="password123").content.decode()
    wrong = change_own(browser, old="wrong")
    assert (wrong.status_code, "old password was entered incorrectly" in wrong.content.decode()) == (200, True)
    change_own(browser, old="wrong")
    assert "Too many login attempts" in change_own(browser).content.decode(), "wrong passwords count as failed logins"
    assert client.get(f"{API}/jobs").status_code == 200, "nothing was changed"
    assert not AuditEntry.objects.filter(action="user.edited").exists()
    assert Client().get(PAGE)["Location"] == f"/login?next={PAGE}"


def test_hash_upgrade_at_login_keeps_tokens(ann: User, settings: Settings) -> None:
    """A newer Django upgrades the hash at the next login; the password stays the same."""
    settings.PASSWORD_HASHERS = settings.PASSWORD_HASHERS[::-1]
    client, before = client_of(ann), ann.password
    body = {"username": ann.username, "password": OLD}
    assert APIClient().post(f"{API}/login", body, format="json").status_code == 201
    ann.refresh_from_db()
    assert ann.password != before
    assert client.get(f"{API}/jobs").status_code == 200


def test_token_without_password_mark_is_refused(ann: User) -> None:
    client = client_of(ann)
    ApiToken.objects.filter(owner=ann).update(password_mark="")
    assert client.get(f"{API}/jobs").status_code == 401


def test_tokens_of_deactivated_user_stay_invalid_after_reactivation(ann: User) -> None:
    root, client = browser_of(make_user(is_staff=True, is_superuser=True)), client_of(ann)

    def save(**fields: str) -> None:
        body = {"username": ann.username, "date_joined_0": "2030-01-01", "date_joined_1": "00:00:00", **fields}
        assert root.post(f"/admin/auth/user/{ann.pk}/change/", body).status_code == 302

    save()
    assert client.get(f"{API}/jobs").status_code == 401
    save(is_active="on")
    assert client.get(f"{API}/jobs").status_code == 401
    entry = AuditEntry.objects.get(action="user.tokens_ended")
    assert (entry.object_id, entry.after) == (str(ann.pk), {"tokens": 1, "because": "account deactivated"})


def test_user_revokes_all_own_tokens_at_once(ann: User) -> None:
    User.objects.filter(pk=ann.pk).update(is_staff=True)
    ann.refresh_from_db()
    client, other, (worker, _) = client_of(ann), client_of(ann), worker_client(ann)
    stranger = client_of(make_user())
    for query in ("", "?all=false", "?all=yes", "?all=true&x=1"):
        assert client.delete(f"{API}/tokens{query}").status_code == 400
    done = client.delete(f"{API}/tokens?all=true")
    assert (done.status_code, done.json()) == (200, {"revoked": 2})
    assert [each.get(f"{API}/jobs").status_code for each in (client, other, stranger)] == [401, 401, 200]
    assert worker.get(f"{API}/workers/terms").status_code == 200
    entry = AuditEntry.objects.get(action="user.tokens_revoked")
    assert (entry.object_id, entry.after) == (str(ann.pk), {"tokens": 2, "workers": False})

    assert client_of(ann).delete(f"{API}/tokens?all=true&workers=true").json() == {"revoked": 2}
    assert worker.get(f"{API}/workers/terms").status_code == 401
    assert ApiToken.objects.filter(owner=ann, revoked_at=None).count() == 0


def test_bootstrap_token_survives_only_if_password_is_the_configured_one(
    db: None, monkeypatch: pytest.MonkeyPatch, bucket: None
) -> None:
    secret = "pun_" + "a" * 40

    def bootstrap(password: str) -> str:
        monkeypatch.setenv("PUNCTUAL_ADMIN_PASSWORD", password)
        monkeypatch.setenv("PUNCTUAL_API_TOKEN", secret)
        out = StringIO()
        call_command("bootstrap", admin_user="root", stdout=out)
        return out.getvalue()

    def status() -> int:
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
        return int(client.get(f"{API}/jobs").status_code)

    bootstrap(OLD)
    root = User.objects.get(username="root")
    root.set_password(NEW)
    root.save()
    assert status() == 401
    assert "ended when the password" in bootstrap("")
    assert status() == 401
    bootstrap(OLD)
    assert status() == 200


def test_hash_upgrade_by_bootstrap_keeps_tokens(
    db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch, bucket: None
) -> None:
    settings.PASSWORD_HASHERS = [MD5, PBKDF2]
    monkeypatch.setenv("PUNCTUAL_ADMIN_PASSWORD", OLD)
    monkeypatch.delenv("PUNCTUAL_API_TOKEN", raising=False)
    call_command("bootstrap", admin_user="root", stdout=StringIO())
    root = User.objects.get(username="root")
    client = client_of(root)
    settings.PASSWORD_HASHERS = [PBKDF2, MD5]
    call_command("bootstrap", admin_user="root", stdout=StringIO())
    assert User.objects.get(pk=root.pk).password != root.password
    assert client.get(f"{API}/jobs").status_code == 200
