"""No sequence of moves, from any number of connections, leaves the table of legal moves.

A trigger that the test installs records every change of state that Postgres commits. Hypothesis chooses the moves,
which run on several connections at once with current, stale and forged fences.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.domain.errors import StaleAttempt
from jobs.domain.outcomes import decide_outcome
from jobs.domain.retry_policy import RetryPolicy
from jobs.domain.states import ACTIVE, INITIAL, LEGAL, TERMINAL, Move, Reason, State, target_state
from jobs.domain.worker_protocol import AttemptFence, Registration
from jobs.execution import transitions
from jobs.execution.transitions import AttemptOutcome, Placement
from jobs.models import Attempt, Execution, Job
from tests.support.barriers import at_once, beside
from tests.support.factories import make_execution, make_job, make_worker

pytestmark = pytest.mark.django_db(transaction=True)

RECORDER = """
CREATE TABLE IF NOT EXISTS seen_moves (
    at bigserial, execution_id uuid, was text, became text, attempt_was int, attempt int);
CREATE OR REPLACE FUNCTION record_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen_moves (execution_id, was, became, attempt_was, attempt)
    VALUES (NEW.id, CASE TG_OP WHEN 'UPDATE' THEN OLD.state END, NEW.state,
            CASE TG_OP WHEN 'UPDATE' THEN OLD.attempt END, NEW.attempt);
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER record_move AFTER INSERT OR UPDATE ON jobs_execution
    FOR EACH ROW EXECUTE FUNCTION record_move();
"""
FORGET = "DROP TABLE IF EXISTS seen_moves CASCADE; DROP FUNCTION IF EXISTS record_move CASCADE"


@pytest.fixture
def recorder() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(RECORDER)
    yield
    with connection.cursor() as cursor:
        cursor.execute(FORGET)


class World:
    """A few executions and workers, and every move that any process could try on them."""

    def __init__(self) -> None:
        self.job: Job = make_job(max_concurrency=None, retry={"max_attempts": 2, "backoff_seconds": 0})
        self.workers: list[Registration] = [make_worker(), make_worker()]
        self.executions: list[UUID] = [
            make_execution(job=self.job, state=state).id for state in (State.READY, State.READY, State.BLOCKED)
        ]

    def hold(self, execution: int, staleness: int) -> AttemptFence:
        """Return the current fence, or one with a wrong attempt, worker or incarnation."""
        row = Execution.objects.values_list("attempt", "worker_id", "incarnation").get(id=self.executions[execution])
        attempt, worker_id, incarnation = row[0], row[1] or uuid4(), row[2] or 0
        return AttemptFence(
            self.executions[execution],
            attempt - (staleness == 1),
            uuid4() if staleness == 2 else worker_id,
            incarnation + (staleness == 3),
        )

    def move(self, name: str, execution: int, worker: int, staleness: int) -> Callable[[], object]:
        target = self.executions[execution]
        registration = self.workers[worker]

        def attempt_move() -> object:  # noqa: PLR0911 - one for each move
            match name:
                case "place":
                    return transitions.place([Placement(target, registration.worker_id, registration.incarnation)])
                case "claim":
                    return transitions.claim(self.hold(execution, staleness))
                case "start":
                    transitions.start(self.hold(execution, staleness), {})
                    return None
                case "lose":
                    return transitions.lose_executions({registration.worker_id: None})
                case "wake":
                    return transitions.wake_backed_off()
                case "return":
                    return transitions.return_unclaimed()
                case "unblock":
                    return transitions.unblock([target])
                case "skip":
                    return transitions.skip([target])
                case "cancel":
                    return transitions.cancel([target], by="test")
                case _:
                    return transitions.finish(self.hold(execution, staleness), ENDINGS[name])

        def guarded() -> object:
            try:
                with transaction.atomic():
                    return attempt_move()
            except StaleAttempt:
                return None

        return guarded


ENDINGS = {
    "succeed": AttemptOutcome(Move.SUCCEED, Reason.EXIT, exit_code=0),
    "fail": AttemptOutcome(Move.FAIL, Reason.EXIT, exit_code=1),
    "time_out": AttemptOutcome(Move.TIME_OUT, Reason.TIMEOUT),
    "retry": AttemptOutcome(Move.RETRY, Reason.EXIT, exit_code=1),
    "release": AttemptOutcome(Move.RELEASE, Reason.RELEASED, counts_as_try=False),
    "confirm_cancel": AttemptOutcome(Move.CANCEL, Reason.CANCELLED),
}
NAMES = ["place", "claim", "start", "lose", "wake", "return", "unblock", "skip", "cancel", *ENDINGS]
MOVES = st.tuples(
    st.sampled_from(NAMES),
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
)
ROUNDS = st.lists(st.lists(MOVES, min_size=1, max_size=4), min_size=1, max_size=25)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rounds=ROUNDS)
def test_no_sequence_of_moves_leaves_the_table(recorder: None, rounds: list[list[tuple[str, int, int, int]]]) -> None:
    world = World()
    for together in rounds:
        at_once([world.move(*chosen) for chosen in together])
    assert_history_is_legal()
    assert_rows_are_consistent()


def assert_history_is_legal() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT execution_id, was, became, attempt_was, attempt FROM seen_moves ORDER BY at")
        rows = cursor.fetchall()
    ended: set[UUID] = set()
    for execution_id, was, became, attempt_was, attempt in rows:
        if was is None:
            assert State(became) in INITIAL
            continue
        if was != became:
            assert execution_id not in ended, "a finished execution moved again"
            assert (State(was), State(became)) in LEGAL
            assert attempt == attempt_was + (became == State.QUEUED), "only a placement increments the attempt"
        if State(became) in TERMINAL:
            ended.add(execution_id)


def assert_rows_are_consistent() -> None:
    for execution in Execution.objects.all():
        attempts = list(Attempt.objects.filter(execution=execution).order_by("number"))
        open_attempts = [a.number for a in attempts if a.ended_at is None]
        running = execution.state in (State.CLAIMED, State.RUNNING)
        assert open_attempts == ([execution.attempt] if running else []), "an attempt is open exactly while it is held"
        assert (execution.worker_id is not None) >= (State(execution.state) in ACTIVE)


@pytest.mark.parametrize("contenders", [2, 8])
def test_attempt_is_claimed_once(contenders: int) -> None:
    worker = make_worker()
    execution = make_execution()
    transitions.place([Placement(execution.id, worker.worker_id, worker.incarnation)])
    hold = AttemptFence(execution.id, 1, worker.worker_id, worker.incarnation)

    def claim() -> bool:
        try:
            transitions.claim(hold)
        except StaleAttempt:
            return False
        return True

    assert sum(at_once([claim] * contenders)) == 1
    assert Attempt.objects.filter(execution=execution).count() == 1


def _claim_slowly(hold: AttemptFence, claimed: threading.Event) -> None:
    with transaction.atomic():
        transitions.claim(hold)
        claimed.set()
        with connection.cursor() as cursor:
            # Long enough for the release to arrive and wait at the row.
            cursor.execute("SELECT pg_sleep(0.3)")


def test_loss_does_not_wait_for_a_claim_and_the_next_loss_closes_its_attempt() -> None:
    worker = make_worker()
    execution = make_execution()
    transitions.place([Placement(execution.id, worker.worker_id, worker.incarnation)])
    hold = AttemptFence(execution.id, 1, worker.worker_id, worker.incarnation)
    assert beside(partial(transitions.claim, hold), partial(_lose, worker)) == ""
    assert_rows_are_consistent()
    assert Attempt.objects.get().ended_at is None, "the claim keeps it"
    assert _lose(worker) == "ready"
    assert_rows_are_consistent()
    assert Attempt.objects.get().reason == Reason.LOST


def _finish(hold: AttemptFence) -> str:
    try:
        return transitions.finish(hold, ENDINGS["succeed"]).state
    except StaleAttempt:
        return "refused"


def _lose(worker: Registration) -> str:
    return "".join(moved.state for moved in transitions.lose_executions({worker.worker_id: None}))


def test_finish_and_loss_have_one_winner() -> None:
    for _ in range(10):
        worker = make_worker()
        execution = make_execution()
        transitions.place([Placement(execution.id, worker.worker_id, worker.incarnation)])
        hold = AttemptFence(execution.id, 1, worker.worker_id, worker.incarnation)
        transitions.claim(hold)
        transitions.start(hold, {})

        finished, lost = at_once([partial(_finish, hold), partial(_lose, worker)])
        assert (finished, lost) in {("succeeded", ""), ("refused", "ready")}


def test_outcomes_are_legal_moves_of_their_state() -> None:
    for reason in (Reason.EXIT, Reason.TIMEOUT, Reason.OUT_OF_MEMORY, Reason.SANDBOX_ERROR, Reason.RELEASED):
        for cancelled in (False, True):
            verdict = decide_outcome(
                reason=reason, exit_code=1, cancelled=cancelled, started=True, tries_used=0, policy=RetryPolicy()
            )
            assert (State.RUNNING, State(target_state(verdict.move))) in LEGAL


def _release_once_claimed(hold: AttemptFence, claimed: threading.Event) -> None:
    assert claimed.wait(30)
    with suppress(StaleAttempt), transaction.atomic():
        transitions.finish(hold, ENDINGS["release"])


def test_release_that_waited_for_a_claim_leaves_no_attempt_open() -> None:
    worker = make_worker()
    execution = make_execution()
    transitions.place([Placement(execution.id, worker.worker_id, worker.incarnation)])
    hold = AttemptFence(execution.id, 1, worker.worker_id, worker.incarnation)
    claimed = threading.Event()
    at_once([partial(_claim_slowly, hold, claimed), partial(_release_once_claimed, hold, claimed)])
    assert_rows_are_consistent()
