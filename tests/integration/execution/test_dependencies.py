"""Dependencies: conditions, fan-in, fan-out, diamonds, and skips that propagate."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import Registration, RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.dependents import resolve_dependents
from jobs.models import Dependency, Execution, Job
from tests.support.factories import make_execution, make_job, make_schedule, make_user, make_worker, run_on

pytestmark = pytest.mark.django_db

ENDS = {
    "succeeded": RunReport(Reason.EXIT, exit_code=0),
    "failed": RunReport(Reason.EXIT, exit_code=1),
    "timed_out": RunReport(Reason.TIMEOUT),
    "cancelled": RunReport(Reason.CANCELLED),
}


class Graph:
    """Jobs by name; `edges` are written as "b after a" or "b after a on failure"."""

    def __init__(self, *edges: str) -> None:
        owner = make_user()
        self.worker: Registration = make_worker()
        self.jobs: dict[str, Job] = {}
        for edge in edges:
            words = edge.split()
            job, upstream = (self.jobs.setdefault(n, make_job(owner=owner, name=n)) for n in (words[0], words[2]))
            condition = words[4] if len(words) > 3 else "success"
            Dependency.objects.create(job=job, upstream=upstream, condition=condition)

    def start(self, name: str) -> Execution:
        return make_execution(job=self.jobs[name])

    def end(self, name: str, root: Execution, how: str = "succeeded") -> None:
        execution = Execution.objects.get(job=self.jobs[name], run_id=root.run_id)
        finish_attempt(run_on(self.worker, execution), ENDS[how])

    def states(self, root: Execution) -> dict[str, str]:
        rows = Execution.objects.filter(run_id=root.run_id).exclude(id=root.id)
        return dict(rows.values_list("job__name", "state"))


@pytest.mark.parametrize(
    ("condition", "how", "becomes"),
    [
        ("success", "succeeded", "ready"),
        ("success", "failed", "skipped"),
        ("success", "timed_out", "skipped"),
        ("success", "cancelled", "skipped"),
        ("failure", "succeeded", "skipped"),
        ("failure", "failed", "ready"),
        ("failure", "timed_out", "ready"),
        ("failure", "cancelled", "skipped"),
        ("completion", "succeeded", "ready"),
        ("completion", "failed", "ready"),
        ("completion", "timed_out", "ready"),
        ("completion", "cancelled", "ready"),
    ],
)
def test_condition_is_met_or_the_dependent_is_skipped(condition: str, how: str, becomes: str) -> None:
    graph = Graph(f"b after a on {condition}")
    root = graph.start("a")
    graph.end("a", root, how)
    assert graph.states(root) == {"b": becomes}
    dependent = Execution.objects.get(job=graph.jobs["b"])
    assert (dependent.trigger, dependent.run_id) == ("dependency", root.run_id)
    assert (dependent.ended_at is not None) == (becomes == "skipped")


def test_retry_does_not_resolve_dependents() -> None:
    graph = Graph("b after a on completion")
    version = graph.jobs["a"].current_version
    assert version is not None
    version.retry = {"max_attempts": 2}
    version.save()
    root = graph.start("a")
    graph.end("a", root, "failed")
    assert graph.states(root) == {}


def test_fan_out_unblocks_all() -> None:
    graph = Graph("b after a", "c after a", "d after a on failure")
    root = graph.start("a")
    graph.end("a", root)
    assert graph.states(root) == {"b": "ready", "c": "ready", "d": "skipped"}


def test_diamond_waits_for_both_sides_and_runs_once() -> None:
    graph = Graph("b after a", "c after a", "d after b", "d after c")
    root = graph.start("a")
    graph.end("a", root)
    assert graph.states(root) == {"b": "ready", "c": "ready", "d": "blocked"}
    graph.end("b", root)
    assert graph.states(root)["d"] == "blocked"
    graph.end("c", root)
    assert graph.states(root)["d"] == "ready"
    assert Execution.objects.filter(job=graph.jobs["d"]).count() == 1


def test_fan_in_with_one_failure_is_skipped_after_both_finish() -> None:
    graph = Graph("b after a", "c after a", "d after b", "d after c")
    root = graph.start("a")
    graph.end("a", root)
    graph.end("b", root, "failed")
    assert graph.states(root)["d"] == "blocked"
    graph.end("c", root)
    assert graph.states(root)["d"] == "skipped"


def test_each_upstream_has_its_own_condition() -> None:
    graph = Graph("b after a", "c after a", "d after b on failure", "d after c on success")
    root = graph.start("a")
    graph.end("a", root)
    graph.end("b", root, "failed")
    graph.end("c", root)
    assert graph.states(root)["d"] == "ready"


def test_skip_propagates_until_a_completion_condition() -> None:
    graph = Graph("b after a", "c after b", "d after c", "cleanup after c on completion")
    root = graph.start("a")
    graph.end("a", root, "failed")
    assert graph.states(root) == {"b": "skipped", "c": "skipped", "d": "skipped", "cleanup": "ready"}


def test_skip_inside_a_diamond_reaches_the_join() -> None:
    graph = Graph("b after a", "c after a on failure", "d after b on completion", "d after c on completion")
    root = graph.start("a")
    graph.end("a", root)
    assert graph.states(root) == {"b": "ready", "c": "skipped", "d": "blocked"}
    graph.end("b", root)
    assert graph.states(root)["d"] == "ready"


def test_cancelled_blocked_execution_unblocks_completion_dependents() -> None:
    graph = Graph("b after a on completion")
    root = graph.start("a")
    resolve_dependents(transitions.cancel([root.id], by="test"))
    assert graph.states(root) == {"b": "ready"}


def test_run_started_in_the_middle_ignores_upstreams_outside_it() -> None:
    graph = Graph("b after a", "c after a", "d after b", "d after c")
    root = graph.start("b")
    graph.end("b", root)
    assert graph.states(root) == {"d": "ready"}


def test_distant_dependent_is_created_when_the_root_finishes() -> None:
    graph = Graph("b after a", "c after b", "d after c", "d after a")
    root = graph.start("a")
    graph.end("a", root)
    assert graph.states(root) == {"b": "ready", "c": "blocked", "d": "blocked"}
    graph.end("b", root)
    graph.end("c", root)
    assert graph.states(root)["d"] == "ready"


def test_edge_added_during_a_run_joins_it() -> None:
    graph = Graph("b after a", "c after b")
    root = graph.start("a")
    graph.end("a", root)
    late = graph.jobs["late"] = make_job(owner=graph.jobs["a"].owner, name="late")
    Dependency.objects.create(job=late, upstream=graph.jobs["b"])
    graph.end("b", root)
    assert graph.states(root) == {"b": "succeeded", "c": "ready", "late": "ready"}


def test_scheduled_job_takes_no_part_in_runs_of_its_upstreams() -> None:
    graph = Graph("b after a", "c after b", "d after a")
    make_schedule(job=graph.jobs["b"], next_instant=None, next_fire_at=None)
    root = graph.start("a")
    graph.end("a", root)
    assert graph.states(root) == {"d": "ready"}
    own = graph.start("b")
    graph.end("b", own)
    assert graph.states(own) == {"c": "ready"}


def test_deleted_schedule_is_ignored() -> None:
    graph = Graph("b after a")
    make_schedule(job=graph.jobs["b"], next_instant=None, next_fire_at=None, deleted_at=datetime.now(UTC))
    root = graph.start("a")
    graph.end("a", root)
    assert graph.states(root) == {"b": "ready"}


def test_runs_do_not_mix() -> None:
    graph = Graph("b after a", "c after a", "d after b", "d after c")
    one, two = graph.start("a"), graph.start("a")
    for root in (one, two):
        graph.end("a", root)
    graph.end("b", one)
    graph.end("c", two)
    assert graph.states(one)["d"] == graph.states(two)["d"] == "blocked"


def test_cancelled_job_gets_no_execution_from_its_upstreams() -> None:
    graph = Graph("b after a")
    Job.objects.filter(name="b").update(state="cancelled")
    root = graph.start("a")
    graph.end("a", root)
    assert graph.states(root) == {}


@pytest.mark.parametrize(("condition", "becomes"), [("success", "skipped"), ("completion", "ready")])
def test_cancelled_job_in_the_middle_does_not_block_its_dependents(condition: str, becomes: str) -> None:
    graph = Graph("b after a", "c after a", f"d after b on {condition}", "d after c")
    Job.objects.filter(name="b").update(state="cancelled")
    root = graph.start("a")
    graph.end("a", root)
    graph.end("c", root)
    assert graph.states(root) == {"b": "skipped", "c": "succeeded", "d": becomes}


def test_unblocked_dependent_is_ranked_by_when_it_became_ready() -> None:
    graph = Graph("b after a", "c after a", "d after b", "d after c")
    root = graph.start("a")
    graph.end("a", root)
    graph.end("b", root)
    blocked = Execution.objects.get(job=graph.jobs["d"])
    graph.end("c", root)
    freed = Execution.objects.get(job=graph.jobs["d"])
    assert freed.rank > blocked.rank
    assert freed.ready_at is not None
    assert freed.fired_at < freed.ready_at
