"""`network`: needs the owner's permission and a worker with network, and ends with the permission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.test import Client
from rest_framework.test import APIClient

from jobs.definitions.editing import edit_job
from jobs.dispatch.explain import explain_execution
from jobs.dispatch.placement import place_ready_executions
from jobs.domain.job_edit import JobEdit
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import RunReport
from jobs.execution import attempts
from jobs.execution.transitions import NewExecution, create_executions
from jobs.models import Artifact, Dependency, Execution, ExecutionEvent, Job, JobVersion, Queue, Trigger
from tests.integration.api.conftest import API, client_of, job_body
from tests.support.factories import hold_of, make_execution, make_job, make_user, make_worker, place_on, run_on
from tests.support.rest_workers import join

Submit = Callable[..., dict[str, Any]]
ABLE = ["bash", "python", "binary", "network"]

pytestmark = pytest.mark.django_db


def permission() -> Permission:
    return Permission.objects.get(content_type__app_label="jobs", codename="use_network")


def allow(user: User) -> User:
    user.user_permissions.add(permission())
    return User.objects.get(id=user.id)


def waiting(owner: User) -> Execution:
    return make_execution(job=make_job(owner=owner, network=True))


def placed(execution: Execution) -> bool:
    place_ready_executions()
    execution.refresh_from_db()
    return execution.state == State.QUEUED


def test_network_without_permission_is_rejected(client: APIClient, bucket: None) -> None:
    response = client.post(f"{API}/jobs", job_body(network=True), format="json")
    assert response.status_code == 403
    assert response["Content-Type"] == "application/problem+json"
    (error,) = response.json()["errors"]
    assert error["field"] == "network"
    assert "jobs.use_network" in error["message"]
    for model in (Job, JobVersion, Artifact, Execution):
        assert not model.objects.exists(), model


def test_staff_needs_network_permission_too(staff: APIClient, bucket: None) -> None:
    assert staff.post(f"{API}/jobs", job_body(network=True), format="json").status_code == 403


@pytest.mark.parametrize("way", ["own", "group", "superuser"])
def test_network_with_permission_is_stored(owner: User, client: APIClient, bucket: None, way: str) -> None:
    group = Group.objects.create(name="online")
    group.permissions.add(permission())
    match way:
        case "own":
            allow(owner)
        case "group":
            owner.groups.add(group)
        case "superuser":
            User.objects.filter(id=owner.id).update(is_superuser=True)
    response = client.post(f"{API}/jobs", job_body(network=True), format="json")
    assert response.status_code == 201, response.content
    data = client.get(f"{API}/jobs/{response.json()['id']}").json()
    assert data["network"] is True
    make_worker(capabilities=ABLE)
    assert placed(Execution.objects.get()), "placement checks the same permission"


def test_edit_checks_network_permission_of_owner(submit: Submit, client: APIClient, owner: User) -> None:
    job = submit()
    address = f"{API}/jobs/{job['id']}"
    root = client_of(make_user(is_staff=True, is_superuser=True))
    for editor in (client, root):
        refused = editor.patch(address, {"network": True}, format="json")
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "network")
    allow(owner)
    assert client.patch(address, {"network": True}, format="json").json()["network"] is True
    assert client.patch(address, {"priority": 7}, format="json").json()["network"] is True
    assert JobVersion.objects.count() == 3
    owner.user_permissions.clear()
    assert client.patch(address, {"priority": 8}, format="json").status_code == 403
    assert client.patch(address, {"priority": 8, "network": False}, format="json").json()["network"] is False


def test_network_job_runs_only_on_workers_with_network(owner: User) -> None:
    execution = waiting(allow(owner))
    make_worker(name="offline")
    assert not placed(execution)
    explanation = explain_execution(execution.id)
    assert "network" in explanation.words
    (gate,) = (gate for gate in explanation.gates if gate.name == "capability")
    assert (gate.open, gate.words) == (False, "0 of 1 workers offer bash, network.")
    online = make_worker(name="online", capabilities=ABLE)
    assert explain_execution(execution.id).words.endswith("places it on online.")
    assert placed(execution)
    assert execution.worker_id == online.worker_id


def test_job_without_network_runs_anywhere(owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    make_worker()
    assert placed(execution)
    assert not attempts.claim_attempt(hold_of(execution)).network


def test_revoked_network_permission_holds_waiting_executions(owner: User) -> None:
    make_worker(capabilities=ABLE)
    execution, other = waiting(allow(owner)), make_execution()
    owner.user_permissions.clear()
    assert not placed(execution)
    assert placed(other), "it does not hide runnable executions"
    explanation = explain_execution(execution.id)
    for way_out in ("the permission jobs.use_network again", "cancel this execution", "edit the job to network: false"):
        assert way_out in explanation.words
    assert [gate.name for gate in explanation.gates if not gate.open] == ["network_permission"]
    allow(owner)
    assert placed(execution)


def test_removing_network_cancels_waiting_executions(owner: User) -> None:
    worker = make_worker(capabilities=ABLE)
    job = make_job(owner=allow(owner), network=True, max_concurrency=2)
    running, queued, ready = (make_execution(job=job) for _ in range(3))
    blocked = make_execution(job=job, state=State.BLOCKED)
    run_on(worker, running)
    place_on(worker, queued)
    after = make_job(owner=owner)
    Dependency.objects.create(job=after, upstream=job, condition="completion")
    (own,) = create_executions([NewExecution(after.id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=ready.run_id)])
    owner.user_permissions.clear()
    edit_job(job.id, JobEdit(network=False))
    states = {each.id: each.state for each in Execution.objects.all()}
    assert {states[each.id] for each in (queued, ready, blocked)} == {"cancelled"}
    assert states[running.id] == "running"
    assert states[own] == "ready", "dependents are resolved"
    cancelled = ExecutionEvent.objects.filter(name="execution.cancel_requested").values_list(
        "execution_id", "detail__by"
    )
    assert set(cancelled) == {(each.id, "network was taken from the job") for each in (queued, ready, blocked)}
    assert placed(make_execution(job=job))


def test_unrelated_edit_cancels_nothing(owner: User) -> None:
    execution = waiting(allow(owner))
    edit_job(execution.job_id, JobEdit(priority=1))
    execution.refresh_from_db()
    assert execution.state == State.READY


def test_execution_waiting_for_network_does_not_block_its_job(owner: User) -> None:
    worker = make_worker(capabilities=ABLE)
    job = make_job(owner=allow(owner), network=True, max_concurrency=1)
    first = make_execution(job=job)
    fence = run_on(worker, first)
    edit_job(job.id, JobEdit(network=False))
    second, third = make_execution(job=job), make_execution(job=job)
    attempts.finish_attempt(fence, RunReport(Reason.RELEASED))
    Execution.objects.filter(id=first.id).update(rank=first.rank)
    with transaction.atomic():
        assert placed(first), "one at a time and in order"
        second.refresh_from_db()
        assert second.state == State.READY
        transaction.set_rollback(True)
    owner.user_permissions.clear()
    assert explain_execution(second.id).words.startswith("Nothing holds it")
    Queue.objects.update(paused=True)
    for execution, has_room in ((second, True), (third, False)):
        (gate,) = (gate for gate in explain_execution(execution.id).gates if gate.name == "job_limit")
        assert gate.open == has_room
    Queue.objects.update(paused=False)
    assert not placed(first)
    assert placed(second)
    assert not placed(third)


def test_inactive_owner_has_no_network(owner: User) -> None:
    make_worker(capabilities=ABLE)
    execution = waiting(allow(owner))
    User.objects.update(is_active=False)
    assert not placed(execution)


def test_claim_includes_network(owner: User) -> None:
    make_worker(capabilities=ABLE)
    execution = waiting(allow(owner))
    assert placed(execution)
    assert attempts.claim_attempt(hold_of(execution)).network


@pytest.mark.django_db(transaction=True)
def test_rest_claim_includes_network_also_when_repeated(owner: User) -> None:
    worker = join(capabilities=ABLE)
    execution = waiting(allow(owner))
    assert placed(execution)
    for _ in range(2):
        (claimed,) = worker.claim()["executions"]
        assert (claimed["execution_id"], claimed["network"]) == (str(execution.id), True)


def test_admin_shows_network_and_grants_permission(owner: User) -> None:
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    job = make_job(owner=owner, network=True)
    make_job(name="offline")
    listed = admin.get("/admin/jobs/job/?current_version__network__exact=1").content.decode()
    assert str(job.id) in listed
    assert "offline" not in listed
    assert "Network" in admin.get(f"/admin/jobs/job/{job.id}/change/").content.decode()
    assert (
        "Can give the runs of own jobs a network" in admin.get(f"/admin/auth/user/{owner.id}/change/").content.decode()
    )
