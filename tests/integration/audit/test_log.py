"""Audit entries: committed with their change, limited to the differences, and immutable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from uuid_utils import compat

from jobs.audit.actor import Actor, acting_as
from jobs.audit.log import Change, PruneResult, prune_entries, record_change, record_changes
from jobs.definitions import editing, lifecycle
from jobs.dispatch import queues
from jobs.domain.errors import Conflict
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.job_spec import JobSpec, Requirements, ScheduleSpec
from jobs.domain.recurrence import Kind
from jobs.fleet import leases
from jobs.models import AuditEntry, Job, Queue, Via
from jobs.scheduling import calendars
from jobs.tasks import prune_history
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.support.submitting import submit_job

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def last_entry() -> AuditEntry:
    return AuditEntry.objects.latest("id")


def submit(owner: User, **fields: Any) -> UUID:
    spec = JobSpec(name="job", runtime="bash", script="echo", **fields)
    return submit_job(owner=owner, spec=spec).id


def test_job_creation_records_the_given_fields(bucket: None) -> None:
    owner = make_user()
    daily = ScheduleSpec(Kind.CRON, "0 5 * * *")
    job_id = submit(
        owner,
        env={"TOKEN": "s3cret"},
        args=["-p", "s3cret"],
        schedules=[daily],
        requirements=Requirements(cpu=2),
        priority=5,
    )
    entry = last_entry()
    assert (entry.action, entry.object_id, entry.owner_id, entry.before) == ("job.created", str(job_id), owner.pk, {})
    assert (entry.actor_id, entry.actor_name, entry.via, entry.address) == (None, "system", "system", None)
    assert entry.after["requirements.cpu"] == 2
    assert entry.after["schedules"][0]["expression"] == "0 5 * * *"
    assert entry.after["env.TOKEN"] == entry.after["args.1"] == entry.after["args.2"] == "(hidden)"
    assert "priority" not in entry.after, "unchanged from the default"
    assert "s3cret" not in str(entry.after)


def test_edit_records_changed_fields(bucket: None) -> None:
    owner = make_user()
    holidays = calendars.create_calendar(owner=owner, name="holidays", dates=[])
    daily = ScheduleSpec(Kind.CRON, "0 5 * * *", calendar="holidays")
    job_id = submit(owner, env={"A": "s3cret", "B": "s3cret"}, args=["-p", "s3cret"], schedules=[daily])
    changed = JobEdit(env={"A": "n3w", "B": "s3cret"}, args=["-p", "n3w"], requirements={"cpu": 1.0}, script="true")
    editing.edit_job(job_id, changed)
    entry = last_entry()
    assert entry.action == "job.edited"
    assert entry.before.keys() == entry.after.keys() == {"env.A", "args.2", "requirements.cpu", "program"}
    assert (entry.before["requirements.cpu"], entry.after["requirements.cpu"]) == (0.25, 1.0)
    assert (entry.before["env.A"], entry.after["env.A"]) == ("(hidden)", "(hidden, changed)")
    assert (entry.before["args.2"], entry.after["args.2"]) == ("(hidden)", "(hidden, changed)")
    count = AuditEntry.objects.count()
    schedule = Job.objects.get(id=job_id).schedules.get()
    same = ScheduleEdit(id=schedule.id, calendar="holidays")
    editing.edit_job(job_id, JobEdit(name="job", env={"A": "n3w", "B": "s3cret"}, schedules=[same]))
    assert AuditEntry.objects.count() == count, "an equivalent edit"
    editing.edit_job(job_id, JobEdit(schedules=[ScheduleEdit(id=schedule.id, expression="0 6 * * *")]))
    assert last_entry().after["schedules"][0]["expression"] == "0 6 * * *"
    assert last_entry().before["schedules"][0]["calendar"] == str(holidays.id)


def test_repeated_action_leaves_no_second_entry() -> None:
    job = make_job()
    for _ in range(2):
        lifecycle.pause_job(job.id, note="why")
    for _ in range(2):
        lifecycle.resume_job(job.id)
    for _ in range(2):
        lifecycle.cancel_job(job.id, by="")
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["job.paused", "job.resumed", "job.cancelled"]


def test_cancelling_a_job_counts_its_cancelled_executions() -> None:
    job = make_job()
    run_on(make_worker(), make_execution(job=job))
    make_execution(job=job)
    lifecycle.cancel_job(job.id, by="")
    assert last_entry().after == {"state": "cancelled", "executions_cancelled": 2}
    assert last_entry().before == {"state": "active"}


def test_refused_change_leaves_no_entry() -> None:
    job = make_job(state="cancelled")
    with pytest.raises(Conflict):
        lifecycle.pause_job(job.id, note="")
    with pytest.raises(Conflict):
        lifecycle.execute_job(job.id)
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_entry_and_change_are_committed_together() -> None:
    job = make_job()
    with pytest.raises(transaction.TransactionManagementError):
        record_change("job.paused", job)
    with transaction.atomic():
        lifecycle.pause_job(job.id, note="")
        transaction.set_rollback(True)
    assert not AuditEntry.objects.exists()
    lifecycle.pause_job(job.id, note="")
    assert last_entry().action == "job.paused"


def test_queue_changes_are_recorded() -> None:
    queue = Queue(name="urgent", priority=3)
    queues.save_queue(queue)
    assert (last_entry().action, last_entry().after["priority"]) == ("queue.created", 3)
    queue.priority, queue.aging_seconds = 4, 1
    queues.save_queue(queue, changed=["priority"])
    entry = last_entry()
    assert (entry.action, entry.before, entry.after) == ("queue.edited", {"priority": 3}, {"priority": 4})
    assert queues.pause_queues([queue.id]) == 1
    assert queues.pause_queues([queue.id]) == 0
    assert queues.resume_queues([queue.id]) == 1
    queues.delete_queue(queue)
    names = ["queue.created", "queue.edited", "queue.paused", "queue.resumed", "queue.deleted"]
    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == names


def test_worker_that_drains_itself_leaves_no_entry() -> None:
    worker = make_worker()
    assert leases.drain_worker(worker)
    assert not AuditEntry.objects.exists()
    assert leases.request_drain(worker)
    assert not AuditEntry.objects.exists(), "it was draining already"
    assert leases.request_drain(make_worker())
    assert last_entry().after == {"status": "draining"}


def test_many_changes_take_one_statement() -> None:
    owner = make_user()
    me = Actor(owner.pk, "me", Via.API, "2001:db8::1", UUID(int=1), "laptop")
    many = [Change("job.created", number, f"job {number}", owner.pk, after={"n": number}) for number in range(1000)]
    with acting_as(lambda: me), CaptureQueriesContext(connection) as queries:
        record_changes(many)
    assert len(queries) == 1
    assert AuditEntry.objects.filter(actor_name="me", address="2001:db8::1", token_name="laptop").count() == 1000
    assert [entry.after["n"] for entry in AuditEntry.objects.order_by("id")] == list(range(1000))


def test_hostile_text_is_stored_and_bounded() -> None:
    job = make_job()
    record_change("job.edited", job, name="a\0\ud800" * 1000, after={"note": "\0\ud800", "large": ["x" * 4000] * 100})
    assert last_entry().after["large"].startswith("(cut: 40")
    assert "\0" not in last_entry().object_name


def test_entries_cannot_be_updated_or_deleted() -> None:
    record_change("job.paused", make_job())
    with pytest.raises(DatabaseError, match="cannot be changed or deleted"), transaction.atomic():
        AuditEntry.objects.update(actor_name="another")
    with pytest.raises(DatabaseError, match="cannot be changed or deleted"), transaction.atomic():
        AuditEntry.objects.all().delete()
    assert last_entry().actor_name == "system"


def test_retention_deletes_expired_entries(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    ages = [401, 400.5, 399, 0]
    for age in ages:
        at = now - age * DAY
        own = compat.uuid7(nanoseconds=int(at.timestamp() * 1_000_000_000))
        AuditEntry.objects.create(id=own, at=at, via=Via.API, action=f"{age}")
    monkeypatch.setattr("jobs.audit.log.PRUNE_BATCH_ENTRIES", 1)
    assert prune_history()["changes"] == {"entries": 2, "finished": True}
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"399", "0"}
    settings.PUNCTUAL_AUDIT_DAYS = 1
    prune_history()
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"0"}
    assert prune_entries(retention=DAY, within_seconds=-1) == PruneResult(0, finished=False)
