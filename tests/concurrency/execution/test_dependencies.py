"""Concurrent completions, cancels, reapers and sweeps decide every dependent once and never hang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from jobs.definitions import lifecycle
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import Registration, RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.dependents import resolve_just_fired, sweep_blocked
from jobs.execution.transitions import NewExecution
from jobs.fleet.reaping import reap_lost_workers
from jobs.models import Dependency, Execution, Job, Trigger, Worker
from tests.support.barriers import at_once
from tests.support.factories import (
    make_execution,
    make_job,
    make_schedule,
    make_user,
    make_worker,
    run_on,
    stamp_reaping,
)

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 12
SUCCESS = RunReport(Reason.EXIT, exit_code=0)
FAILURE = RunReport(Reason.EXIT, exit_code=1)


class Graph:
    """Jobs by name; an edge is written as "b after a on failure". A run starts at "a"."""

    def __init__(self, *edges: str) -> None:
        owner = make_user()
        self.worker: Registration = make_worker()
        self.jobs: dict[str, Job] = {}
        for edge in edges:
            name, _, upstream, _, condition = edge.split()
            job, above = (self.jobs.setdefault(n, make_job(owner=owner, name=n)) for n in (name, upstream))
            Dependency.objects.create(job=job, upstream=above, condition=condition)

    def start(self) -> Execution:
        self.root = make_execution(job=self.jobs["a"])
        return self.root

    def execution(self, name: str) -> Execution:
        return Execution.objects.get(job=self.jobs[name], run_id=self.root.run_id)

    def finish(self, name: str, report: RunReport = SUCCESS) -> Callable[[], object]:
        """Start the execution now; the returned function finishes it."""
        return partial(finish_attempt, run_on(self.worker, self.execution(name)), report)

    def states(self, *names: str) -> list[str]:
        return [self.execution(name).state for name in names]


@pytest.mark.parametrize("upstreams", [2, 5])
def test_upstreams_finishing_at_once_unblock_the_dependent_once(upstreams: int) -> None:
    names = [f"up{n}" for n in range(upstreams)]
    graph = Graph(*(f"{n} after a on success" for n in names), *(f"last after {n} on success" for n in names))
    for _ in range(ROUNDS):
        graph.start()
        graph.finish("a")()
        at_once([graph.finish(name) for name in names])
        assert graph.states("last") == ["ready"]
    assert Execution.objects.filter(job=graph.jobs["last"]).count() == ROUNDS


def test_concurrent_failure_and_success_each_meet_their_condition() -> None:
    graph = Graph(
        "b after a on success", "c after a on success",
        "both after b on success", "both after c on failure",
        "neither after b on failure", "neither after c on success",
        "after after neither on completion",
    )  # fmt: skip
    for _ in range(ROUNDS):
        graph.start()
        graph.finish("a")()
        at_once([graph.finish("b"), graph.finish("c", FAILURE)])
        assert graph.states("both", "neither", "after") == ["ready", "skipped", "ready"]


def test_skips_from_two_sides_do_not_deadlock() -> None:
    """The second step of each side needs rows that the other holds since its first step."""
    graph = Graph(
        "p after a on success", "q after a on success",
        "x after p on success", "z after p on success", "y after z on success",
        "y after q on success", "w after q on success", "x after w on success",
    )  # fmt: skip
    for _ in range(ROUNDS):
        graph.start()
        graph.finish("a")()
        at_once([graph.finish("p", FAILURE), graph.finish("q", FAILURE)])
        sweep_blocked()
        assert graph.states("x", "y", "z", "w") == ["skipped"] * 4


def test_cancel_racing_the_upstream_leaves_nothing_blocked() -> None:
    graph = Graph("up after a on success", "b after up on success", "c after up on success", "c after b on completion")
    for _ in range(ROUNDS):
        graph.start()
        graph.finish("a")()
        assert graph.states("b", "c") == ["blocked", "blocked"]
        cancel: Callable[[], object] = partial(lifecycle.cancel_execution, graph.execution("b").id, by="test")
        at_once([graph.finish("up"), cancel])
        sweep_blocked()
        assert graph.states("b", "c") == ["cancelled", "ready"]


def test_job_cancelled_while_its_upstream_finishes_never_runs() -> None:
    for _ in range(ROUNDS):
        graph = Graph("b after a on success", "c after b on completion")
        graph.start()
        cancel: Callable[[], object] = partial(lifecycle.cancel_job, graph.jobs["b"].id, by="test")
        at_once([graph.finish("a"), cancel])
        sweep_blocked()
        assert set(graph.states("b")) <= {"cancelled", "skipped"}
        assert graph.states("c") == ["ready"]


def test_upstream_lost_for_good_resolves_its_dependents_once() -> None:
    graph = Graph("b after a on failure", "c after a on success", "d after c on completion")
    version = graph.jobs["a"].current_version
    assert version is not None
    version.delivery = "at_most_once"
    version.save()
    for _ in range(3):
        graph.start()
        run_on(graph.worker, graph.root)
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    stamp_reaping()
    at_once([reap_lost_workers] * 3)
    states = Counter(Execution.objects.values_list("job__name", "state"))
    assert states == {("a", "failed"): 3, ("b", "ready"): 3, ("c", "skipped"): 3, ("d", "ready"): 3}


def test_concurrent_sweeps_decide_each_dependent_once() -> None:
    graph = Graph("b after a on success", "c after b on success")
    for _ in range(40):
        run = graph.start()
        transitions.create_executions(
            [NewExecution(graph.jobs["b"].id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=run.run_id)]
        )
    Execution.objects.filter(job=graph.jobs["a"]).update(state=State.SUCCEEDED, ended_at=datetime.now(UTC))

    def sweep() -> int:
        unblocked, after = 0, None
        while True:
            swept = sweep_blocked(limit=7, after=after)
            unblocked, after = unblocked + swept.unblocked, swept.after
            if after is None:
                return unblocked

    decided = sum(at_once([sweep] * 4))
    # The next sweep, a second later, decides what one sweep left because another held its run.
    decided += sweep()
    assert decided == 40
    assert set(Execution.objects.filter(job=graph.jobs["b"]).values_list("state", flat=True)) == {"ready"}


def test_sweeps_racing_completions_decide_everything_once() -> None:
    graph = Graph("b after a on success", "c after a on success", "d after b on failure", "d after c on success")
    for _ in range(ROUNDS):
        graph.start()
        graph.finish("a")()
        at_once([graph.finish("b", FAILURE), graph.finish("c"), sweep_blocked, sweep_blocked])
        assert graph.states("d") == ["ready"]


def test_upstreams_finishing_at_once_unblock_a_scheduled_dependent() -> None:
    owner, worker, now = make_user(), make_worker(), datetime.now(UTC)
    upstreams = [make_job(owner=owner) for _ in range(2)]
    last = make_job(owner=owner)
    schedule = make_schedule(job=last, next_instant=now + timedelta(hours=1))
    for upstream in upstreams:
        Dependency.objects.create(job=last, upstream=upstream)
    for number in range(ROUNDS):
        executions = [make_execution(job=upstream) for upstream in upstreams]
        holds = [run_on(worker, execution) for execution in executions]
        instant = datetime.now(UTC) + timedelta(microseconds=number)
        ids = transitions.create_executions(
            [NewExecution(last.id, Trigger.SCHEDULE, State.BLOCKED, schedule_id=schedule.id, scheduled_for=instant)]
        )
        resolve_just_fired(ids)
        assert Execution.objects.get(id=ids[0]).state == "blocked"
        at_once([partial(finish_attempt, hold, SUCCESS) for hold in holds])
        assert Execution.objects.get(id=ids[0]).state == "ready"
