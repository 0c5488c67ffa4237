"""Decisions at the end of an attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.outcomes import Outcome, decide_outcome
from jobs.domain.retry_policy import RetryPolicy
from jobs.domain.states import LEGAL, MOVES, TERMINAL, Move, Reason, State

TWICE = RetryPolicy(max_attempts=2, backoff_seconds=7)


def decide(reason: Reason, exit_code: int | None = None, **more: object) -> Outcome:
    given: dict[str, object] = {"cancelled": False, "started": True, "tries_used": 0, "policy": RetryPolicy()} | more
    return decide_outcome(reason=reason, exit_code=exit_code, **given)  # type: ignore[arg-type]


def test_exit_zero_succeeds() -> None:
    assert decide(Reason.EXIT, 0) == Outcome(Move.SUCCEED, Reason.EXIT)


@pytest.mark.parametrize("exit_code", [1, 255, None])
def test_any_other_exit_fails(exit_code: int | None) -> None:
    assert decide(Reason.EXIT, exit_code).move is Move.FAIL


def test_exit_zero_with_another_reason_is_no_success() -> None:
    assert decide(Reason.OUT_OF_MEMORY, 0).move is Move.FAIL


def test_started_run_times_out() -> None:
    assert decide(Reason.TIMEOUT).move is Move.TIME_OUT
    assert decide(Reason.TIMEOUT, started=False).move is Move.FAIL


def test_remaining_tries_mean_a_retry_after_the_backoff() -> None:
    assert decide(Reason.EXIT, 1, policy=TWICE) == Outcome(Move.RETRY, Reason.EXIT, retry_seconds=7)
    assert decide(Reason.TIMEOUT, policy=TWICE).move is Move.RETRY
    assert decide(Reason.EXIT, 1, policy=TWICE, tries_used=1).move is Move.FAIL


def test_policy_checks_exit_code_and_signal() -> None:
    only = RetryPolicy(max_attempts=2, on_exit_codes=(75, 137))
    assert decide(Reason.EXIT, 75, policy=only).move is Move.RETRY
    assert decide(Reason.EXIT, signal=9, policy=only).move is Move.RETRY
    assert decide(Reason.EXIT, 1, policy=only) == Outcome(Move.FAIL, Reason.EXIT)
    timeouts = RetryPolicy(max_attempts=2, on_reasons=("exit",))
    assert decide(Reason.TIMEOUT, policy=timeouts) == Outcome(Move.TIME_OUT, Reason.TIMEOUT)


def test_jitter_depends_on_the_execution() -> None:
    spread = RetryPolicy(max_attempts=2, backoff_seconds=7, jitter=1)
    waits = {decide(Reason.EXIT, 1, policy=spread, seed=bytes([n])).retry_seconds for n in range(50)}
    assert len(waits) == 50
    assert max(waits) <= 7


@pytest.mark.parametrize(("seconds_left", "move"), [(7.1, Move.RETRY), (7, Move.FAIL), (-1, Move.FAIL)])
def test_no_try_starts_after_the_deadline(seconds_left: float, move: Move) -> None:
    assert decide(Reason.EXIT, 1, policy=TWICE, seconds_left=seconds_left).move is move
    unavailable = decide(Reason.ARTIFACT_UNAVAILABLE, started=False, attempt=3, seconds_left=seconds_left)
    assert unavailable.move is Move.FAIL, "the delay would be eight seconds"


def test_run_stopped_at_its_deadline_has_reason_deadline() -> None:
    assert decide(Reason.TIMEOUT, policy=TWICE, seconds_left=-0.1) == Outcome(Move.TIME_OUT, Reason.DEADLINE)
    assert decide(Reason.TIMEOUT, seconds_left=5) == Outcome(Move.TIME_OUT, Reason.TIMEOUT)
    assert decide(Reason.EXIT, 0, seconds_left=-5).move is Move.SUCCEED, "done is done"


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("may_retry", [True, False])
def test_cancel_wins_over_every_outcome(reason: Reason, may_retry: bool) -> None:
    outcome = decide(reason, 0, cancelled=True, policy=TWICE, may_retry=may_retry)
    assert outcome == Outcome(Move.CANCEL, Reason.CANCELLED)


def test_release_uses_up_no_try() -> None:
    assert decide(Reason.RELEASED, tries_used=99) == Outcome(Move.RELEASE, Reason.RELEASED, counts_as_try=False)


@pytest.mark.parametrize(
    ("reason", "exit_code", "move"),
    [
        (Reason.RELEASED, None, Move.FAIL),
        (Reason.EXIT, 1, Move.FAIL),
        (Reason.TIMEOUT, None, Move.TIME_OUT),
        (Reason.EXIT, 0, Move.SUCCEED),
    ],
)
def test_at_most_once_is_never_retried(reason: Reason, exit_code: int | None, move: Move) -> None:
    outcome = decide(reason, exit_code, policy=TWICE, may_retry=False)
    assert (outcome.move, outcome.reason) == (move, reason)
    assert MOVES[outcome.move][1] in TERMINAL


@given(
    reason=st.sampled_from(Reason),
    exit_code=st.none() | st.integers(0, 255),
    cancelled=st.booleans(),
    started=st.booleans(),
    tries_used=st.integers(0, 200),
    may_retry=st.booleans(),
)
def test_every_outcome_is_a_legal_move(
    *, reason: Reason, exit_code: int | None, cancelled: bool, started: bool, tries_used: int, may_retry: bool
) -> None:
    outcome = decide(
        reason,
        exit_code,
        cancelled=cancelled,
        started=started,
        tries_used=tries_used,
        policy=TWICE,
        may_retry=may_retry,
    )
    state = State.RUNNING if started else State.CLAIMED
    if outcome.move is not Move.SUCCEED:  # the fence refuses a success that never started
        assert (state, MOVES[outcome.move][1]) in LEGAL
    never_ran = reason is Reason.ARTIFACT_UNAVAILABLE and not started
    assert outcome.counts_as_try or outcome.move is Move.RELEASE or never_ran


def test_unavailable_secret_is_retried_by_the_policy() -> None:
    missing = Reason.SECRET_UNAVAILABLE
    assert decide(missing, started=False) == Outcome(Move.FAIL, missing)
    assert decide(missing, started=False, policy=TWICE) == Outcome(Move.RETRY, missing, retry_seconds=7)
    only = RetryPolicy(max_attempts=2, on_reasons=("exit",))
    assert decide(missing, started=False, policy=only).move is Move.FAIL


def test_object_store_outage_uses_up_no_try() -> None:
    def unavailable(attempt: int, *, may_retry: bool = True, started: bool = False) -> Outcome:
        return decide_outcome(
            reason=Reason.ARTIFACT_UNAVAILABLE,
            exit_code=None,
            cancelled=False,
            started=started,
            tries_used=0,
            policy=RetryPolicy(),
            may_retry=may_retry,
            attempt=attempt,
        )

    assert unavailable(1) == Outcome(Move.RETRY, Reason.ARTIFACT_UNAVAILABLE, retry_seconds=2, counts_as_try=False)
    assert unavailable(29).retry_seconds == 60
    assert unavailable(30).move is Move.FAIL
    assert unavailable(1, may_retry=False).move is Move.FAIL
    assert unavailable(1, started=True).move is Move.FAIL, "it ran, but its outputs could not be stored"
