"""Logins and failed logins in the audit log: visible, but bounded in number."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from jobs.access import login
from jobs.domain import limits
from jobs.models import AuditEntry
from tests.integration.api.access.test_tokens import PASSWORD, log_in
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_user


@pytest.fixture
def ann(db: None, settings: Settings) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for key in login._redis().client.scan_iter("punctual:login:*"):
        login._redis().client.delete(key)
    return make_user(password=PASSWORD, is_staff=True)


def enter(page: str, username: str, password: str = PASSWORD) -> Any:
    return Client().post(page, {"username": username, "password": password})


def entries(action: str) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action=f"user.{action}").order_by("id"))


@pytest.mark.parametrize(("page", "via"), [("/login", "api"), ("/admin/login/", "admin"), (f"{API}/login", "api")])
def test_every_login_path_audits_success_and_failure(ann: User, page: str, via: str) -> None:
    def attempt(password: str) -> Any:
        if page.startswith(API):
            return log_in(ann.username, password, "192.0.2.1")
        return Client().post(page, {"username": ann.username, "password": password}, REMOTE_ADDR="192.0.2.1")

    assert attempt("wrong").status_code in (200, 401)
    assert attempt(PASSWORD).status_code in (201, 302)
    (failed,), (entered,) = entries("login_failed"), entries("logged_in")
    assert {(each.object_id, each.owner_id) for each in (failed, entered)} == {(str(ann.pk), ann.pk)}
    assert {(each.via, each.address) for each in (failed, entered)} == {(via, "192.0.2.1")}
    assert (failed.actor_id, entered.actor_id) == (None, ann.pk)
    assert failed.after == {"failures": 1}
    assert "wrong" not in str([failed.before, failed.after, failed.object_name])


def test_user_reads_failed_logins_of_own_account(ann: User) -> None:
    User.objects.filter(pk=ann.pk).update(is_staff=False)
    ann.refresh_from_db()
    log_in(ann.username, "wrong")
    log_in("somebody else", "wrong")
    data = client_of(ann).get(f"{API}/audit?action=user.login_failed").json()["results"]
    assert [each["object_id"] for each in data] == [str(ann.pk)]


def test_non_staff_admin_login_is_not_audited_as_login(ann: User) -> None:
    User.objects.filter(pk=ann.pk).update(is_staff=False)
    assert enter("/admin/login/", ann.username).status_code == 200
    assert entries("logged_in") == []


def test_correct_password_rejected_by_admin_is_audited_and_counted(ann: User) -> None:
    User.objects.filter(pk=ann.pk).update(is_staff=False)
    for _ in range(limits.MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS + 3):
        assert enter("/admin/login/", ann.username).status_code == 200
    refused = [each for each in entries("login_failed") if "because" in each.after]
    assert len(refused) == limits.MAX_LOGIN_TRIES_PER_USER_AND_ADDRESS
    assert {(each.object_id, each.owner_id) for each in refused} == {(str(ann.pk), ann.pk)}
    assert refused[0].after == {"because": "not staff"}
    assert not list(login._redis().client.scan_iter("punctual:login:known:*"))


def test_unknown_user_name_is_not_recorded_because_it_may_be_a_password(ann: User) -> None:
    log_in("hunter2hunter2", "x")
    (entry,) = entries("login_failed")
    assert (entry.object_name, entry.owner_id, entry.object_id) == ("(no such user)", None, "")
    assert "hunter2" not in str(vars(entry))


def test_guesses_are_audited_at_powers_of_ten(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = {log_in(ann.username, "wrong").status_code for _ in range(105)}
    assert statuses == {401, 429}, "rejections without a password check count too"
    assert [each.after["failures"] for each in entries("login_failed")] == [1, 10, 100]
    log_in(ann.username, "wrong", "192.0.2.77")
    assert entries("login_failed")[-1].after == {"failures": 1}, "another address has its own counter"


def test_rejected_user_names_do_not_fill_redis(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOGIN_TRIES_PER_ADDRESS", 2)
    for number in range(12):
        log_in(f"user {number}", "wrong")
    assert len(list(login._redis().client.scan_iter("punctual:login:failures:*"))) == 3
    assert [each.after["failures"] for each in entries("login_failed")] == [1, 1, 1, 10], "counted for the address only"


def test_many_guessing_clients_do_not_fill_the_audit_log(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOGIN_FAILURE_ENTRIES_PER_MINUTE", 3)
    for number in range(8):
        log_in(f"user {number}", "wrong", f"192.0.2.{number}")
    assert len(entries("login_failed")) == 3
    # The next minute.
    login._redis().client.delete("punctual:login:entries")
    log_in(ann.username, "wrong", "192.0.2.99")
    assert entries("login_failed")[-1].after == {"failures": 1, "unlisted": 5}
