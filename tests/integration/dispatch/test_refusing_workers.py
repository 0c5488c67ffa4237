"""A worker that refuses work stays online, gets nothing and shows why, until it registers without a refusal."""

from __future__ import annotations

import pytest

from jobs.dispatch.explain import explain_execution
from jobs.dispatch.placement import place_ready_executions
from jobs.models import Execution, Worker
from tests.support.factories import make_execution, make_job, make_worker

pytestmark = pytest.mark.django_db

WHY = "The sandbox of this host does not hold: network (it reached the worker)."


def gates_of(execution: Execution) -> list[tuple[str, bool, str]]:
    return [(gate.name, gate.open, gate.words) for gate in explain_execution(execution.id).gates]


def test_refusing_worker_gets_nothing_even_if_it_is_the_only_one() -> None:
    worker, execution = make_worker(name="weak", refusal=WHY), make_execution()
    assert place_ready_executions().placed == 0
    assert Worker.objects.get().status == "online"
    assert ("refusal", False, f"weak refuses work. {WHY}") in gates_of(execution)
    assert explain_execution(execution.id).words.startswith("It waits:")
    again = make_worker(name="weak")
    assert again.worker_id == worker.worker_id
    assert place_ready_executions().placed == 1
    assert Worker.objects.get().refusal == ""


def test_other_workers_get_the_work_instead() -> None:
    make_worker(name="weak", refusal=WHY)
    sound, execution = make_worker(), make_execution()
    place_ready_executions()
    execution.refresh_from_db()
    assert execution.worker_id == sound.worker_id


def test_execution_pinned_to_a_refusing_worker_waits_with_a_reason() -> None:
    weak = make_worker(name="weak", refusal=WHY)
    make_worker()
    execution = make_execution()
    Execution.objects.update(pinned_worker_id=weak.worker_id)
    assert place_ready_executions().placed == 0
    assert [name for name, is_open, _ in gates_of(execution) if not is_open and name == "refusal"] == ["refusal"]


def test_refusals_of_unsuitable_workers_are_not_shown() -> None:
    make_worker(pool="other", refusal=WHY)
    gone = make_worker(refusal=WHY)
    Worker.objects.filter(id=gone.worker_id).update(status="offline")
    assert "refusal" not in [name for name, _, _ in gates_of(make_execution())]


def test_execution_that_requires_a_sound_sandbox_runs_only_there() -> None:
    make_worker()
    sandboxed = make_execution(job=make_job(capabilities=["untrusted-ok"]))
    assert place_ready_executions().placed == 0
    sound = make_worker(capabilities=["bash", "untrusted-ok"])
    place_ready_executions()
    sandboxed.refresh_from_db()
    assert sandboxed.worker_id == sound.worker_id
