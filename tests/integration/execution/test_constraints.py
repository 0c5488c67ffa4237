"""Database constraints: Postgres refuses rows that the code would misread."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F, Model

from jobs.execution import transitions
from jobs.execution.transitions import NewExecution
from jobs.models import (
    Artifact,
    Attempt,
    Dependency,
    Execution,
    JobVersion,
    Output,
    Queue,
    Schedule,
    Secret,
    Trigger,
    VersionSecret,
    Worker,
)
from tests.support.factories import make_execution, make_job, make_output, make_schedule, make_user, make_worker, run_on

pytestmark = pytest.mark.django_db

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def refused(model: type[Model], constraint: str, **values: Any) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        model._default_manager.update(**values)


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("execution_active_has_worker", {"state": "queued"}),
        ("execution_ended_at_iff_terminal", {"state": "succeeded"}),
        ("execution_ended_at_iff_terminal", {"ended_at": NOW}),
        ("execution_retry_at_iff_backing_off", {"state": "backing_off"}),
        ("execution_retry_at_iff_backing_off", {"retry_at": NOW}),
        ("execution_ready_at_when_ready", {"ready_at": None}),
        ("execution_dead_letter_failed", {"dead_letter": "open"}),
        ("attempt_check", {"attempt": -1}),
    ],
)
def test_constraints_of_a_waiting_execution(constraint: str, values: dict[str, Any]) -> None:
    make_execution()
    refused(Execution, constraint, **values)


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("execution_active_has_worker", {"worker": None}),
        ("execution_active_has_worker", {"incarnation": None}),
        ("execution_active_has_worker", {"placed_at": None}),
        ("execution_active_has_worker", {"attempt": 0}),
        ("execution_claimed_at_when_claimed", {"claimed_at": None}),
        ("execution_started_at_when_running", {"started_at": None}),
        ("execution_waiting_has_no_worker", {"state": "ready"}),
    ],
)
def test_constraints_of_a_running_execution(constraint: str, values: dict[str, Any]) -> None:
    run_on(make_worker(), make_execution())
    refused(Execution, constraint, **values)


@pytest.mark.parametrize(("values"), [{"reason": "exit"}, {"ended_at": NOW}, {"reason": "boredom", "ended_at": NOW}])
def test_attempt_has_a_reason_exactly_when_it_has_ended(values: dict[str, Any]) -> None:
    run_on(make_worker(), make_execution())
    refused(Attempt, "attempt_reason_iff_ended", **values)


def test_attempt_number_is_unique() -> None:
    run_on(make_worker(), make_execution())
    attempt = Attempt.objects.get()
    attempt.pk = Attempt._meta.get_field("id").get_default()
    with pytest.raises(IntegrityError, match="attempt_number_once"), transaction.atomic():
        attempt.save(force_insert=True)


def test_job_runs_once_in_a_run_also_as_its_root() -> None:
    root, other = make_execution(), make_job()
    member = NewExecution(other.id, Trigger.DEPENDENCY, run_id=root.id)
    for again in (member, member, NewExecution(root.job_id, Trigger.DEPENDENCY, run_id=root.id)):
        transitions.create_executions([again])
    assert set(Execution.objects.values_list("job_id", "run_id")) == {(root.job_id, root.id), (other.id, root.id)}
    assert Execution.objects.count() == 2


def test_instant_of_a_schedule_is_unique() -> None:
    schedule = make_schedule()
    first, second = make_execution(), make_execution()
    Execution.objects.filter(id=first.id).update(schedule=schedule, scheduled_for=NOW)
    with pytest.raises(IntegrityError, match="execution_once_per_instant"), transaction.atomic():
        Execution.objects.filter(id=second.id).update(schedule=schedule, scheduled_for=NOW)


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("schedule_kind_known", {"kind": "whim"}),
        ("schedule_catch_up_known", {"catch_up": "some"}),
        ("schedule_jitter_not_negative", {"jitter_seconds": -1}),
        ("schedule_fires_at_or_after_its_instant", {"next_fire_at": F("next_instant") - timedelta(seconds=1)}),
        ("schedule_fires_at_or_after_its_instant", {"next_instant": None}),
        ("schedule_fires_at_or_after_its_instant", {"next_fire_at": None}),
    ],
)
def test_constraints_of_a_schedule(constraint: str, values: dict[str, Any]) -> None:
    make_schedule()
    refused(Schedule, constraint, **values)


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("job_version_priority_0_9", {"priority": 10}),
        ("job_version_needs_something", {"cpu": 0}),
        ("job_version_needs_something", {"memory_mb": 0}),
        ("job_version_timeout_positive", {"timeout_seconds": 0}),
        ("job_version_limit_positive", {"max_concurrency": 0}),
        ("job_version_deadline_positive", {"deadline_seconds": 0}),
        ("job_version_delivery_known", {"delivery": "exactly_once"}),
    ],
)
def test_constraints_of_a_version(constraint: str, values: dict[str, Any]) -> None:
    make_job()
    refused(JobVersion, constraint, **values)


def test_constraints_of_a_dependency() -> None:
    upstream = make_job()
    Dependency.objects.create(job=make_job(owner=upstream.owner), upstream=upstream)
    refused(Dependency, "dependency_not_on_itself", job=F("upstream"))
    refused(Dependency, "dependency_condition_known", condition="maybe")


def test_constraints_of_queues_workers_and_files() -> None:
    make_job()
    make_worker()
    refused(Queue, "queue_aging_within_a_day", aging_seconds=-1)
    refused(Queue, "queue_limit_positive", max_concurrency=0)
    refused(Worker, "worker_status_known", status="tired")
    refused(Worker, "worker_has_a_slot", slots=0)
    refused(Artifact, "artifact_sha256_hex", sha256="X" * 64)
    refused(Artifact, "artifact_size_not_negative", size=-1)
    run_on(make_worker(), make_execution())
    make_output(Attempt.objects.get(), name="a")
    refused(Output, "output_sha256_hex", sha256="")


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("version_secret_env_or_path", {"env": None}),
        ("version_secret_env_or_path", {"path": "a"}),
    ],
)
def test_constraints_of_a_grant(constraint: str, values: dict[str, Any]) -> None:
    version = JobVersion.objects.get(job=make_job())
    VersionSecret.objects.create(version=version, name="s", env="A")
    refused(VersionSecret, constraint, **values)


@pytest.mark.parametrize(("place", "constraint"), [("env", "secret_env_once"), ("path", "secret_path_once")])
def test_grants_do_not_share_a_place(place: str, constraint: str) -> None:
    version = JobVersion.objects.get(job=make_job())
    VersionSecret.objects.create(version=version, name="s", **{place: "A"})
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        VersionSecret.objects.create(version=version, name="t", **{place: "A"})


@pytest.mark.parametrize(
    ("constraint", "values"),
    [("secret_name_plain", {"name": "a b"}), ("secret_name_plain", {"name": ""}), ("secret_version_", {"version": 0})],
)
def test_constraints_of_a_secret(constraint: str, values: dict[str, Any]) -> None:
    owner = make_user()
    Secret.objects.create(owner=owner, name="s", sealed=b"")
    with pytest.raises(IntegrityError, match="secret_name_once"), transaction.atomic():
        Secret.objects.create(owner=owner, name="s", sealed=b"")
    refused(Secret, constraint, **values)
