"""Changes in the admin are recorded once, and the audit log is read-only there."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.contrib import admin as django_admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group, User
from django.test import Client
from django_celery_beat.models import PeriodicTask

from jobs.audit import log
from jobs.definitions import lifecycle
from jobs.models import AuditEntry, OwnerQuota, Queue
from scheduler_project.admin_site.site import _AuditedModelAdmin
from tests.support.factories import make_execution, make_job, make_user, make_worker

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def me(db: None) -> User:
    return make_user(is_staff=True, is_superuser=True)


@pytest.fixture
def admin(me: User) -> Client:
    client = Client()
    client.force_login(me)
    return client


def send(admin: Client, address: str, **form: Any) -> None:
    response = admin.post(f"/admin/{address}", form)
    assert response.status_code == 302, response.content


def act(admin: Client, table: str, action: str, *keys: object) -> None:
    form = {"action": action, ACTION_CHECKBOX_NAME: [str(key) for key in keys], "post": "yes"}
    send(admin, f"{table}/", **form)


class Trail:
    """What the admin recorded, read entry by entry."""

    def __init__(self) -> None:
        self._read: list[UUID] = []

    def unread(self) -> list[AuditEntry]:
        """Return what was recorded since the last call; by key, as clocks may step."""
        entries = list(AuditEntry.objects.filter(via="admin").exclude(pk__in=self._read))
        self._read += [entry.pk for entry in entries]
        return entries

    def only(self, action: str) -> AuditEntry:
        (entry,) = self.unread()
        assert entry.action == action
        return entry


@pytest.fixture
def trail(db: None) -> Trail:
    return Trail()


def test_every_admin_page_is_audited() -> None:
    """The site wraps every page that is registered."""
    pages = django_admin.site._registry.values()
    assert len(pages) > 10
    assert [page for page in pages if not isinstance(page, _AuditedModelAdmin)] == []


def test_quota_edit_records_old_and_new_values(admin: Client, me: User, trail: Trail) -> None:
    owner = make_user()
    send(admin, "jobs/ownerquota/add/", owner=owner.pk, storage_mb=5)
    entry = trail.only("quota.created")
    assert (entry.actor_id, entry.actor_name, entry.token_id, entry.address) == (
        me.pk, me.get_username(), None, "127.0.0.1",
    )  # fmt: skip
    assert (entry.owner_id, entry.after) == (owner.pk, {"owner": owner.get_username(), "storage_mb": 5})
    quota = OwnerQuota.objects.get()
    send(admin, f"jobs/ownerquota/{quota.pk}/change/", owner=owner.pk, storage_mb=6)
    entry = trail.only("quota.edited")
    assert (entry.before, entry.after) == ({"storage_mb": 5}, {"storage_mb": 6})
    send(admin, f"jobs/ownerquota/{quota.pk}/change/", owner=owner.pk, storage_mb=6)
    assert trail.unread() == [], "nothing was changed"
    act(admin, "jobs/ownerquota", "delete_selected", quota.pk)
    assert trail.only("quota.deleted").before["storage_mb"] == 6


def test_user_and_group_edits_are_recorded_without_passwords(admin: Client, me: User, trail: Trail) -> None:
    passwords = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    send(admin, "auth/user/add/", username="ada", **passwords)
    ada = User.objects.get(username="ada")
    entry = trail.only("user.created")
    assert (entry.object_id, entry.owner_id) == (str(ada.pk), ada.pk)
    assert entry.after == {"username": "ada", "password": "(hidden)"}
    send(admin, f"auth/user/{ada.pk}/password/", **passwords)
    assert trail.only("user.edited").after == {"password": "(hidden)"}
    group = Group.objects.create(name="operators")
    fields = {"username": "ada", "is_active": "on", "is_staff": "on", "groups": [group.pk]}
    moment = {"date_joined_0": "2030-01-01", "date_joined_1": "00:00:00"}
    send(admin, f"auth/user/{ada.pk}/change/", **fields, **moment)
    entry = trail.only("user.edited")
    assert (entry.before["is_staff"], entry.after["is_staff"]) == (False, True)
    assert (entry.before["groups"], entry.after["groups"]) == ([], ["operators"])
    send(admin, f"auth/user/{ada.pk}/delete/", post="yes")
    entry = trail.only("user.deleted")
    assert (entry.object_name, entry.before["username"]) == ("ada", "ada")
    assert not [name for name in entry.before if "password" in name]
    send(admin, "auth/group/add/", name="readers")
    trail.only("group.created")
    me.set_password(PASSWORD)
    me.save()
    admin.force_login(me)
    new = PASSWORD + "!"
    send(admin, "password_change/", old_password=PASSWORD, new_password1=new, new_password2=new)
    assert trail.only("user.edited").after == {"password": "(hidden)"}


def test_changes_recorded_by_services_appear_once(admin: Client, trail: Trail) -> None:
    fields = {"pool": "default", "priority": 0, "aging_seconds": 60}
    send(admin, "jobs/queue/add/", name="urgent", **fields)
    trail.only("queue.created")
    queue = Queue.objects.get(name="urgent")
    initial = {f"initial-{name}": value for name, value in {**fields, "max_concurrency": "", "paused": ""}.items()}
    send(admin, f"jobs/queue/{queue.pk}/change/", **{**fields, **initial, "priority": 7})
    entry = trail.only("queue.edited")
    assert (entry.before, entry.after) == ({"priority": 0}, {"priority": 7})
    for action in ("pause", "resume"):
        act(admin, "jobs/queue", action, queue.pk)
        trail.only(f"queue.{action.rstrip('e')}ed")
    act(admin, "jobs/queue", "delete_selected", queue.pk)
    trail.only("queue.deleted")
    execution = make_execution()
    act(admin, "jobs/execution", "cancel", execution.pk)
    assert trail.only("execution.cancelled").owner_id == execution.job.owner_id
    act(admin, "jobs/worker", "drain", make_worker().worker_id)
    trail.only("worker.drained")


def test_system_task_actions_are_recorded(admin: Client, trail: Trail) -> None:
    task = PeriodicTask.objects.get(task="jobs.prune_history")
    act(admin, "django_celery_beat/periodictask", "enable_tasks", task.pk)
    assert trail.unread() == [], "the webhook was enabled"
    act(admin, "django_celery_beat/periodictask", "disable_tasks", task.pk)
    assert trail.only("system_task.edited").after == {"enabled": False}
    act(admin, "django_celery_beat/periodictask", "toggle_tasks", task.pk)
    assert trail.only("system_task.edited").after == {"enabled": True}


def test_audit_page_is_read_only_and_escapes_markup(admin: Client) -> None:
    job = make_job(name="<b>bold</b>")
    log.record_change("job.paused", job, before={"note": "<i>"}, after={"note": "<u>", "list": [1]})
    entry = AuditEntry.objects.get()
    for address in ("", f"?q={job.id}", f"{entry.pk}/change/"):
        page = admin.get(f"/admin/jobs/auditentry/{address}")
        assert page.status_code == 200
        assert b"&lt;b&gt;bold" in page.content
        assert b"<b>bold" not in page.content
    assert b"&lt;u&gt;" in page.content
    assert b'name="_save"' not in page.content
    assert admin.post(f"/admin/jobs/auditentry/{entry.pk}/delete/", {"post": "yes"}).status_code == 403


def test_history_page_redirects_to_audit_log(admin: Client) -> None:
    job, other = make_job(), make_job()
    lifecycle.pause_job(job.id, note="why")
    lifecycle.cancel_job(other.id, by="")
    page = admin.get(f"/admin/jobs/job/{job.id}/history/", follow=True)
    assert page.status_code == 200
    assert b"job.paused" in page.content
    assert b"job.cancelled" not in page.content
    admin.force_login(make_user())
    for address in (f"job/{job.id}/history", "auditentry"):
        assert admin.get(f"/admin/jobs/{address}/")["Location"].startswith("/admin/login/")
