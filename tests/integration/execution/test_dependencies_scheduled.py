"""Scheduled dependents: which upstream execution they wait for, and how it decides them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs.domain.states import TERMINAL, State
from jobs.domain.worker_protocol import MovedExecution
from jobs.execution import transitions
from jobs.execution.dependents import create_fired_executions, resolve_dependents, resolve_just_fired
from jobs.execution.transitions import NewExecution
from jobs.models import Dependency, DroppedRange, Execution, Job, Schedule, Trigger
from tests.support.factories import make_job, make_schedule, make_user

pytestmark = pytest.mark.django_db

MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)


def at(clock: str) -> datetime:
    hours, minutes = clock.split(":")
    return MIDNIGHT + timedelta(hours=int(hours), minutes=int(minutes))


class Night:
    """Jobs by name with instants of one night."""

    def __init__(self) -> None:
        self.owner = make_user()
        self.jobs: dict[str, Job] = {}
        self.schedules: dict[str, Schedule] = {}

    def job(self, name: str, *upstreams: str, on: str = "success", following: str | None = None, **fields: str) -> Job:
        """`following`: the next instant of its schedule; "": its schedule is finished; None: it has no schedule."""
        job = self.jobs[name] = make_job(owner=self.owner, name=name)
        for upstream in upstreams:
            Dependency.objects.create(job=job, upstream=self.jobs[upstream], condition=on)
        if following is not None:
            self.schedules[name] = make_schedule(job=job, next_instant=at(following) if following else None, **fields)
        return job

    def advance(self, name: str, following: str | None) -> None:
        instant = at(following) if following else None
        Schedule.objects.filter(job=self.jobs[name]).update(next_instant=instant, next_fire_at=instant)

    def fire(self, name: str, clock: str, state: State = State.READY, trigger: Trigger = Trigger.SCHEDULE) -> Execution:
        schedule = self.schedules.get(name) if trigger != Trigger.MANUAL else None
        dependent = Dependency.objects.filter(job=self.jobs[name]).exists() and trigger != Trigger.MANUAL
        new = [
            NewExecution(
                self.jobs[name].id,
                trigger,
                state=State.READY if state in TERMINAL - {State.MISSED, State.SKIPPED} else state,
                schedule_id=schedule.id if schedule else None,
                scheduled_for=at(clock),
            )
        ]
        resolve_just_fired(create_fired_executions(new, {self.jobs[name].id} if dependent else set()))
        execution = Execution.objects.filter(job=self.jobs[name], scheduled_for=at(clock)).latest("id")
        if execution.state != state and state in TERMINAL:
            self.end(execution, state)
        return execution

    def end(self, execution: Execution, state: State = State.SUCCEEDED) -> None:
        Execution.objects.filter(id=execution.id).update(state=state, ended_at=datetime.now(UTC))
        resolve_dependents([MovedExecution(execution.id, execution.job_id, execution.run_id, state)])

    def state(self, execution: Execution) -> str:
        execution.refresh_from_db()
        return execution.state

    def of(self, name: str) -> list[str]:
        return list(Execution.objects.filter(job=self.jobs[name]).order_by("id").values_list("state", flat=True))


@pytest.fixture
def night() -> Night:
    return Night()


@pytest.mark.parametrize(
    ("how", "met"),
    [
        (State.SUCCEEDED, {"success", "completion"}),
        (State.FAILED, {"failure", "completion"}),
        (State.TIMED_OUT, {"failure", "completion"}),
        (State.CANCELLED, {"completion"}),
        (State.MISSED, {"completion"}),
        (State.SKIPPED, {"completion"}),
    ],
)
@pytest.mark.parametrize("condition", ["success", "failure", "completion"])
def test_latest_upstream_execution_decides(night: Night, condition: str, how: State, met: set[str]) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", on=condition, following="04:00")
    night.fire("a", "02:00", how)
    dependent = night.fire("b", "03:00")
    expected = ("ready", None) if condition in met else ("skipped", "dependency")
    assert (dependent.state, dependent.reason) == expected


@pytest.mark.parametrize("how", [State.SUCCEEDED, State.FAILED])
def test_dependent_waits_for_an_unfinished_upstream(night: Night, how: State) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    night.fire("a", "01:00", State.SUCCEEDED)
    upstream = night.fire("a", "02:00")
    dependent = night.fire("b", "03:00")
    assert dependent.state == "blocked"
    night.end(upstream, how)
    assert night.state(dependent) == ("ready" if how is State.SUCCEEDED else "skipped")


def test_dependent_waits_for_an_upstream_instant_that_has_not_fired(night: Night) -> None:
    night.job("a", following="03:00")
    night.job("b", "a", following="04:00")
    night.fire("a", "02:00", State.SUCCEEDED)
    dependent = night.fire("b", "03:00")
    assert dependent.state == "blocked", "the upstream's own 03:00 has not fired yet"
    upstream = night.fire("a", "03:00")
    night.advance("a", "04:00")
    night.end(upstream, State.FAILED)
    assert night.state(dependent) == "skipped"


def test_upstream_executions_after_the_instant_are_ignored(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    night.fire("a", "02:00", State.SUCCEEDED)
    night.fire("a", "03:30")
    assert night.fire("b", "03:00").state == "ready"


def test_latest_means_by_instant_not_by_creation(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    night.fire("a", "02:00", State.SUCCEEDED)
    night.fire("a", "01:00", State.FAILED, Trigger.BACKFILL)
    assert night.fire("b", "03:00").state == "ready"


@pytest.mark.parametrize(("clock", "becomes"), [("02:30", "ready"), ("03:30", "skipped")])
def test_upstream_executed_by_hand_counts_at_its_instant(night: Night, clock: str, becomes: str) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    night.fire("a", "02:00", State.FAILED)
    night.fire("a", clock, State.SUCCEEDED, Trigger.MANUAL)
    assert night.fire("b", "03:00").state == becomes


@pytest.mark.parametrize("condition", ["success", "failure", "completion"])
@pytest.mark.parametrize("following", [None, "", "05:00"])
def test_upstream_that_never_ran_has_not_finished(night: Night, condition: str, following: str | None) -> None:
    night.job("a", following=following)
    night.job("b", "a", on=condition, following="04:00")
    assert night.fire("b", "03:00").state == "skipped"


def test_last_execution_of_a_paused_or_finished_schedule_decides(night: Night) -> None:
    night.job("a", following="")
    night.job("b", "a", following="04:00")
    night.fire("a", "02:00", State.SUCCEEDED)
    assert night.fire("b", "03:00").state == "ready"


def test_dropped_instants_count_as_missed(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    night.job("c", "a", on="completion", following="04:00")
    night.fire("a", "01:00", State.SUCCEEDED)
    DroppedRange.objects.create(
        schedule=night.schedules["a"], first=at("01:05"), last=at("04:55"), count=47, reason="catch_up",
        created_at=datetime.now(UTC),
    )  # fmt: skip
    assert night.fire("b", "03:00").state == "skipped"
    assert night.fire("c", "03:00").state == "ready"
    assert night.fire("b", "01:00").state == "ready", "before anything was dropped"


def test_every_upstream_must_meet_its_condition(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("other", following="05:00")
    night.job("b", "a", "other", following="04:00")
    upstreams = [night.fire("a", "02:00"), night.fire("other", "01:00")]
    dependent = night.fire("b", "03:00")
    for upstream in upstreams:
        assert night.state(dependent) == "blocked"
        night.end(upstream)
    assert night.state(dependent) == "ready"


def test_one_upstream_decides_all_executions_that_wait_for_it(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    upstream = night.fire("a", "02:00")
    waiting = [night.fire("b", clock) for clock in ("02:00", "02:30", "03:00")]
    assert [night.state(e) for e in waiting] == ["blocked"] * 3
    night.end(upstream)
    assert [night.state(e) for e in waiting] == ["ready"] * 3


class TestUpstreamWithoutASchedule:
    """`start` fires `a`, which has no schedule; `b` waits for what `a` does in the runs up to its instant."""

    @pytest.fixture(autouse=True)
    def _jobs(self, night: Night) -> None:
        night.job("start", following="05:00")
        night.job("a", "start")
        night.job("b", "a", following="04:00")

    def run_of_a(self, start: Execution, night: Night) -> Execution:
        return Execution.objects.get(job=night.jobs["a"], run_id=start.run_id)

    def test_a_run_that_has_not_come_to_it_yet_is_waited_for(self, night: Night) -> None:
        night.end(self.run_of_a(night.fire("start", "01:00", State.SUCCEEDED), night))
        start = night.fire("start", "02:00")
        dependent = night.fire("b", "03:00")
        assert dependent.state == "blocked"
        night.end(start)
        assert night.state(dependent) == "blocked"
        night.end(self.run_of_a(start, night), State.FAILED)
        assert night.state(dependent) == "skipped"

    def test_a_run_that_ends_late_belongs_to_its_own_instant(self, night: Night) -> None:
        late = night.fire("start", "03:30", State.SUCCEEDED)
        night.end(self.run_of_a(night.fire("start", "02:00", State.SUCCEEDED), night))
        night.end(self.run_of_a(late, night), State.FAILED)
        assert night.fire("b", "03:00").state == "ready"

    def test_dependent_waits_for_an_instant_of_its_upstreams_upstream(self, night: Night) -> None:
        night.end(self.run_of_a(night.fire("start", "01:00", State.SUCCEEDED), night))
        night.advance("start", "02:00")
        assert night.fire("b", "03:00").state == "blocked"

    def test_a_failure_above_reaches_it(self, night: Night) -> None:
        start = night.fire("start", "02:00")
        dependent = night.fire("b", "03:00")
        night.end(start, State.FAILED)
        assert night.of("a") == ["skipped"]
        assert night.state(dependent) == "skipped"


def test_skip_propagates_to_run_and_instant_dependents(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    night.job("fired", "b")
    night.job("cleanup", "fired", on="completion")
    night.job("waits", "b", following="04:00")
    upstream = night.fire("a", "02:00")
    dependent, waits = night.fire("b", "03:00"), night.fire("waits", "03:00")
    night.end(upstream, State.FAILED)
    assert [night.state(e) for e in (dependent, waits)] == ["skipped", "skipped"]
    assert (night.of("fired"), night.of("cleanup")) == (["skipped"], ["ready"])


def test_skip_at_firing_propagates(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    night.job("fired", "b")
    night.fire("a", "02:00", State.FAILED)
    night.fire("b", "03:00")
    assert night.of("fired") == ["skipped"]


def test_skipped_fixed_delay_is_rearmed(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="", kind="delay", expression="60")
    upstream = night.fire("a", "02:00")
    night.fire("b", "03:00")
    night.end(upstream, State.FAILED)
    assert night.of("b") == ["skipped"]
    assert Schedule.objects.get(job=night.jobs["b"]).next_instant is not None


def test_executions_fired_before_a_pause_still_run(night: Night) -> None:
    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    upstream = night.fire("a", "02:00")
    dependent = night.fire("b", "03:00")
    Job.objects.filter(name="b").update(state="paused", paused_at=datetime.now(UTC))
    night.end(upstream)
    assert night.state(dependent) == "ready"


def test_history_of_an_upstream_is_not_read(night: Night) -> None:
    """Of a hundred thousand past executions, only those since its latest instant are read."""
    from django.db import connection

    from jobs.db import sql

    night.job("a", following="05:00")
    night.job("b", "a", following="04:00")
    rows = [
        NewExecution(night.jobs["a"].id, Trigger.SCHEDULE, schedule_id=night.schedules["a"].id,
                     scheduled_for=at("02:00") - timedelta(minutes=n))
        for n in range(3000)
    ]  # fmt: skip
    transitions.create_executions(rows)
    dependent = night.fire("b", "03:00")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_execution")
        cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {sql.statement('evaluate_by_instant')}", {"ids": [dependent.id]})
        lines = [line for (line,) in cursor.fetchall()]
    shown = "\n".join(lines)
    # The planner's estimates of other plans do not matter.
    assert not [line for line in lines if "Seq Scan on jobs_execution " in line and "never executed" not in line], shown
    assert "execution_once_per_instant" in shown, shown
