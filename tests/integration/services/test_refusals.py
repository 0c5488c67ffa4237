"""A worker that refuses work is there, is given nothing, and says why; it takes work again once it comes back sound."""

from __future__ import annotations

import pytest

from jobs.models import Execution, Worker
from jobs.services.explaining import explain_execution
from jobs.services.placement import place_ready_executions
from tests.factories import make_execution, make_job, make_worker

pytestmark = pytest.mark.django_db

WHY = "The sandbox of this host does not hold: network (it reached the worker)."


def gates_of(execution: Execution) -> list[tuple[str, bool, str]]:
    return [(gate.name, gate.open, gate.words) for gate in explain_execution(execution.id).gates]


def test_it_is_given_nothing_though_there_is_nobody_else() -> None:
    worker, execution = make_worker(name="weak", refusal=WHY), make_execution()
    assert place_ready_executions().placed == 0
    assert Worker.objects.get().status == "online"
    assert ("refusal", False, f"weak refuses work. {WHY}") in gates_of(execution)
    assert explain_execution(execution.id).words.startswith("It waits:")
    again = make_worker(name="weak")
    assert again.worker_id == worker.worker_id
    assert place_ready_executions().placed == 1
    assert Worker.objects.get().refusal == ""


def test_others_get_what_it_does_not_take() -> None:
    make_worker(name="weak", refusal=WHY)
    sound, execution = make_worker(), make_execution()
    place_ready_executions()
    execution.refresh_from_db()
    assert execution.worker_id == sound.worker_id


def test_what_is_to_run_there_waits_and_is_told_why() -> None:
    weak = make_worker(name="weak", refusal=WHY)
    make_worker()
    execution = make_execution()
    Execution.objects.update(pinned_worker_id=weak.worker_id)
    assert place_ready_executions().placed == 0
    assert [name for name, is_open, _ in gates_of(execution) if not is_open and name == "refusal"] == ["refusal"]


def test_only_those_that_could_be_asked_are_told_of() -> None:
    make_worker(pool="other", refusal=WHY)
    gone = make_worker(refusal=WHY)
    Worker.objects.filter(id=gone.worker_id).update(status="offline")
    assert "refusal" not in [name for name, _, _ in gates_of(make_execution())]


def test_what_asks_for_a_sound_sandbox_runs_only_there() -> None:
    make_worker()
    careful = make_execution(job=make_job(capabilities=["untrusted-ok"]))
    assert place_ready_executions().placed == 0
    sound = make_worker(capabilities=["bash", "untrusted-ok"])
    place_ready_executions()
    careful.refresh_from_db()
    assert careful.worker_id == sound.worker_id
