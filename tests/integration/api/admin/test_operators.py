"""API and admin share one rule: staff operates everything, and only superusers manage users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.test import Client
from rest_framework.test import APIClient

from jobs.access.secrets import create_secret
from jobs.access.tokens import generate_secret, store_token
from jobs.audit.log import record_change
from jobs.models import ApiToken, AuditEntry, Execution, Queue, Secret, Team, Worker
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_execution, make_job, make_user, make_worker

pytestmark = pytest.mark.django_db
PEOPLE: dict[str, dict[str, bool]] = {
    "plain user": {},
    "staff": {"is_staff": True},
    "staff with view permissions only": {"is_staff": True},
    "user with all Django permissions": {},
    "superuser who is not staff": {"is_superuser": True},
    "superuser": {"is_superuser": True, "is_staff": True},
    "inactive staff": {"is_staff": True, "is_active": False},
}
OPERATORS = {"staff", "staff with view permissions only", "superuser"}


class Objects:
    """Create one object of each kind, of another user."""

    def __init__(self) -> None:
        owner = make_user()
        self.job = make_job(owner=owner)
        self.execution = make_execution(job=self.job)
        self.worker: UUID = make_worker().worker_id
        self.queue = Queue.objects.get(name="default")
        self.secret = create_secret(owner=owner, name="key", value="value")
        self.token = store_token(owner=owner, name="other", secret=generate_secret())
        record_change("job.paused", self.job, owner_id=owner.pk)


def person(kind: str) -> User:
    user = make_user(**PEOPLE[kind])
    if kind == "staff with view permissions only":
        user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    if kind == "user with all Django permissions":
        user.user_permissions.set(Permission.objects.exclude(codename="use_network"))
    return User.objects.get(pk=user.pk)


def act(browser: Client, table: str, action: str, key: object) -> None:
    browser.post(f"/admin/jobs/{table}/", {"action": action, ACTION_CHECKBOX_NAME: [str(key)]})


# The operation by API, by admin, and a check that it took effect; reading a page needs no check.
Try = Callable[[Any, Objects], Any]
RIGHTS: dict[str, tuple[Try, Try, Callable[[Objects], bool] | None]] = {
    "read the jobs of others": (
        lambda api, it: api.get(f"{API}/jobs/{it.job.id}"),
        lambda browser, it: browser.get(f"/admin/jobs/job/{it.job.id}/change/"),
        None,
    ),
    "read what others changed": (
        lambda api, it: api.get(f"{API}/audit?object_id={it.job.id}"),
        lambda browser, it: browser.get(f"/admin/jobs/auditentry/?q={it.job.id}"),
        None,
    ),
    "cancel the executions of others": (
        lambda api, it: api.put(f"{API}/executions/{it.execution.id}/cancel"),
        lambda browser, it: act(browser, "execution", "cancel", it.execution.id),
        lambda it: Execution.objects.get(id=it.execution.id).state == "cancelled",
    ),
    "pause a queue": (
        lambda api, it: api.patch(f"{API}/queues/{it.queue.id}", {"paused": True}, format="json"),
        lambda browser, it: act(browser, "queue", "pause", it.queue.id),
        lambda it: Queue.objects.get(id=it.queue.id).paused,
    ),
    "drain a worker": (
        lambda api, it: api.post(f"{API}/workers/{it.worker}/drain", {}, format="json"),
        lambda browser, it: act(browser, "worker", "drain", it.worker),
        lambda it: Worker.objects.get(id=it.worker).status == "draining",
    ),
    "make a team": (
        lambda api, it: api.post(f"{API}/teams", {"name": "team"}, format="json"),
        lambda browser, it: browser.post("/admin/jobs/team/add/", {"name": "team"}),
        lambda it: Team.objects.exists(),
    ),
    "revoke the tokens of others": (
        lambda api, it: api.delete(f"{API}/tokens/{it.token.id}"),
        lambda browser, it: act(browser, "apitoken", "revoke", it.token.id),
        lambda it: ApiToken.objects.get(id=it.token.id).revoked_at is not None,
    ),
    "delete the secrets of others": (
        lambda api, it: api.delete(f"{API}/secrets/{it.secret.id}"),
        lambda browser, it: act(browser, "secret", "delete_unused", it.secret.id),
        lambda it: not Secret.objects.exists(),
    ),
}


@pytest.mark.parametrize("kind", PEOPLE)
def test_api_and_admin_grant_the_same_permissions(kind: str) -> None:
    it, user = Objects(), person(kind)
    browser = Client()
    browser.force_login(user)
    asking: dict[str, APIClient | Client] = {"API": client_of(user), "admin": browser}
    may = {}
    for right, (by_api, by_admin, done) in RIGHTS.items():
        for face, attempt in (("API", by_api), ("admin", by_admin)):
            with transaction.atomic():
                answer = attempt(asking[face], it)
                seen = answer is not None and str(it.job.id) in answer.content.decode()
                may[right, face] = seen if done is None else done(it)
                transaction.set_rollback(True)
    assert may == dict.fromkeys(may, kind in OPERATORS)


@pytest.mark.parametrize("kind", PEOPLE)
def test_only_superusers_manage_users_and_staff_views_them(kind: str) -> None:
    user, other = person(kind), make_user()
    browser = Client()
    browser.force_login(user)
    listed = browser.get("/admin/auth/user/")
    assert (other.username in listed.content.decode()) == (kind in OPERATORS)
    body = {"username": other.username, "is_superuser": "on", "date_joined_0": "2030-01-01", "date_joined_1": "00:00"}
    browser.post(f"/admin/auth/user/{other.pk}/change/", body | {"is_active": "on"})
    browser.post("/admin/auth/group/add/", {"name": "group"})
    passwords = {"password1": "correct horse battery", "password2": "correct horse battery", "usable_password": "true"}
    browser.post(f"/admin/auth/user/{other.pk}/password/", passwords)
    other.refresh_from_db()
    changed = (other.is_superuser, other.has_usable_password(), Group.objects.exists())
    assert set(changed) == {kind == "superuser"}


def test_network_permission_is_granted_by_superuser() -> None:
    staff, root = make_user(is_staff=True), make_user(is_staff=True, is_superuser=True)
    assert not staff.has_perm("jobs.use_network")
    browser = Client()
    browser.force_login(root)
    for page in (f"auth/user/{staff.pk}/change", "auth/group/add"):
        offered = browser.get(f"/admin/{page}/").context["adminform"].form.fields
        choices = offered.get("user_permissions") or offered["permissions"]
        assert [each.codename for each in choices.queryset] == ["use_network"], "permissions with an effect"
    staff.user_permissions.add(Permission.objects.get(codename="use_network"))
    assert User.objects.get(pk=staff.pk).has_perm("jobs.use_network")
    assert AuditEntry.objects.count() == 0
