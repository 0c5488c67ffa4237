"""The admin: what is changed on its pages is in the audit, once, and the audit is read there and not written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin as django_admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django_celery_beat.models import PeriodicTask

from jobs.models import AuditEntry, OwnerQuota, Queue
from jobs.services import audit_trail, commands
from scheduler_project.audited_site import _Audited
from tests.factories import make_execution, make_job, make_user, make_worker

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


def only(action: str) -> AuditEntry:
    """The one entry that there is by now; the next look finds the next."""
    (entry,) = AuditEntry.objects.filter(via="admin")
    assert entry.action == action
    audit_trail.prune_entries(retention=timedelta(0))
    return entry


def test_every_page_is_one_that_is_audited() -> None:
    """A page that is registered anywhere goes through the site, which makes it so."""
    pages = django_admin.site._registry.values()
    assert len(pages) > 10
    assert [page for page in pages if not isinstance(page, _Audited)] == []


def test_quotas_are_told_before_and_after(admin: Client, me: User) -> None:
    owner = make_user()
    send(admin, "jobs/ownerquota/add/", owner=owner.pk, storage_mb=5)
    entry = only("quota.created")
    assert (entry.actor_id, entry.actor_name, entry.token_id, entry.address) == (
        me.pk, me.get_username(), None, "127.0.0.1",
    )  # fmt: skip
    assert (entry.owner_id, entry.after) == (owner.pk, {"owner": owner.get_username(), "storage_mb": 5})
    quota = OwnerQuota.objects.get()
    send(admin, f"jobs/ownerquota/{quota.pk}/change/", owner=owner.pk, storage_mb=6)
    entry = only("quota.edited")
    assert (entry.before, entry.after) == ({"storage_mb": 5}, {"storage_mb": 6})
    send(admin, f"jobs/ownerquota/{quota.pk}/change/", owner=owner.pk, storage_mb=6)
    assert not AuditEntry.objects.filter(via="admin").exists(), "nothing was changed"
    act(admin, "jobs/ownerquota", "delete_selected", quota.pk)
    assert only("quota.deleted").before["storage_mb"] == 6


def test_users_and_groups_are_told_and_passwords_are_not(admin: Client, me: User) -> None:
    passwords = {"password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    send(admin, "auth/user/add/", username="ada", **passwords)
    ada = User.objects.get(username="ada")
    entry = only("user.created")
    assert (entry.object_id, entry.owner_id) == (str(ada.pk), ada.pk)
    assert entry.after == {"username": "ada", "password": "(hidden)"}
    send(admin, f"auth/user/{ada.pk}/password/", **passwords)
    assert only("user.edited").after == {"password": "(hidden)"}
    group = Group.objects.create(name="operators")
    fields = {"username": "ada", "is_active": "on", "is_staff": "on", "groups": [group.pk]}
    moment = {"date_joined_0": "2030-01-01", "date_joined_1": "00:00:00"}
    send(admin, f"auth/user/{ada.pk}/change/", **fields, **moment)
    entry = only("user.edited")
    assert (entry.before["is_staff"], entry.after["is_staff"]) == (False, True)
    assert (entry.before["groups"], entry.after["groups"]) == ([], ["operators"])
    send(admin, f"auth/user/{ada.pk}/delete/", post="yes")
    entry = only("user.deleted")
    assert (entry.object_name, entry.before["username"]) == ("ada", "ada")
    assert not [name for name in entry.before if "password" in name]
    send(admin, "auth/group/add/", name="readers")
    only("group.created")
    me.set_password(PASSWORD)
    me.save()
    admin.force_login(me)
    new = PASSWORD + "!"
    send(admin, "password_change/", old_password=PASSWORD, new_password1=new, new_password2=new)
    assert only("user.edited").after == {"password": "(hidden)"}


def test_what_services_record_is_there_once(admin: Client) -> None:
    fields = {"pool": "default", "priority": 0, "aging_seconds": 60}
    send(admin, "jobs/queue/add/", name="urgent", **fields)
    only("queue.created")
    queue = Queue.objects.get(name="urgent")
    initial = {f"initial-{name}": value for name, value in {**fields, "max_concurrency": "", "paused": ""}.items()}
    send(admin, f"jobs/queue/{queue.pk}/change/", **{**fields, **initial, "priority": 7})
    entry = only("queue.edited")
    assert (entry.before, entry.after) == ({"priority": 0}, {"priority": 7})
    for action in ("pause", "resume"):
        act(admin, "jobs/queue", action, queue.pk)
        only(f"queue.{action.rstrip('e')}ed")
    act(admin, "jobs/queue", "delete_selected", queue.pk)
    only("queue.deleted")
    execution = make_execution()
    act(admin, "jobs/execution", "cancel", execution.pk)
    assert only("execution.cancelled").owner_id == execution.job.owner_id
    act(admin, "jobs/worker", "drain", make_worker().worker_id)
    only("worker.drained")


def test_actions_on_system_tasks_are_told(admin: Client) -> None:
    task = PeriodicTask.objects.get(task="jobs.prune_history")
    act(admin, "django_celery_beat/periodictask", "enable_tasks", task.pk)
    assert not AuditEntry.objects.filter(via="admin").exists(), "it was enabled"
    act(admin, "django_celery_beat/periodictask", "disable_tasks", task.pk)
    assert only("system_task.edited").after == {"enabled": False}
    act(admin, "django_celery_beat/periodictask", "toggle_tasks", task.pk)
    assert only("system_task.edited").after == {"enabled": True}


def test_the_audit_is_read_only_and_shows_no_markup(admin: Client) -> None:
    job = make_job(name="<b>bold</b>")
    audit_trail.record("job.paused", job, before={"note": "<i>"}, after={"note": "<u>", "list": [1]})
    entry = AuditEntry.objects.get()
    for address in ("", f"?q={job.id}", f"{entry.pk}/change/"):
        page = admin.get(f"/admin/jobs/auditentry/{address}")
        assert page.status_code == 200
        assert b"&lt;b&gt;bold" in page.content
        assert b"<b>bold" not in page.content
    assert b"&lt;u&gt;" in page.content
    assert b'name="_save"' not in page.content
    assert admin.post(f"/admin/jobs/auditentry/{entry.pk}/delete/", {"post": "yes"}).status_code == 403


def test_the_history_of_a_job_is_what_the_audit_tells_of_it(admin: Client) -> None:
    job, other = make_job(), make_job()
    commands.pause_job(job.id, note="why")
    commands.cancel_job(other.id, by="")
    page = admin.get(f"/admin/jobs/job/{job.id}/history/", follow=True)
    assert page.status_code == 200
    assert b"job.paused" in page.content
    assert b"job.cancelled" not in page.content
    reader = make_user(is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_job"))
    admin.force_login(reader)
    assert admin.get(f"/admin/jobs/job/{job.id}/history/").status_code == 200, "Django's own, without the audit"
    assert admin.get("/admin/jobs/auditentry/").status_code == 403
