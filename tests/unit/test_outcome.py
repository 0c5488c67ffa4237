"""What the end of an attempt makes of its execution."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.outcome import Verdict, judge
from jobs.retry_policy import RetryPolicy
from jobs.states import LEGAL, MOVES, TERMINAL, Move, Reason, State

TWICE = RetryPolicy(max_attempts=2, backoff_seconds=7)


def verdict(reason: Reason, exit_code: int | None = None, **more: object) -> Verdict:
    given: dict[str, object] = {"cancelled": False, "started": True, "tries_used": 0, "policy": RetryPolicy()} | more
    return judge(reason=reason, exit_code=exit_code, **given)  # type: ignore[arg-type]


def test_exit_zero_succeeds() -> None:
    assert verdict(Reason.EXIT, 0) == Verdict(Move.SUCCEED, Reason.EXIT)


@pytest.mark.parametrize("exit_code", [1, 255, None])
def test_any_other_exit_fails(exit_code: int | None) -> None:
    assert verdict(Reason.EXIT, exit_code).move is Move.FAIL


def test_exit_zero_of_what_was_killed_for_another_reason_is_no_success() -> None:
    assert verdict(Reason.OUT_OF_MEMORY, 0).move is Move.FAIL


def test_a_timeout_is_an_end_of_its_own_once_it_had_started() -> None:
    assert verdict(Reason.TIMEOUT).move is Move.TIME_OUT
    assert verdict(Reason.TIMEOUT, started=False).move is Move.FAIL


def test_tries_left_mean_a_retry_after_the_policys_wait() -> None:
    assert verdict(Reason.EXIT, 1, policy=TWICE) == Verdict(Move.RETRY, Reason.EXIT, retry_seconds=7)
    assert verdict(Reason.TIMEOUT, policy=TWICE).move is Move.RETRY
    assert verdict(Reason.EXIT, 1, policy=TWICE, tries_used=1).move is Move.FAIL


def test_the_policy_is_asked_about_the_code_and_the_signal() -> None:
    only = RetryPolicy(max_attempts=2, on_exit_codes=(75, 137))
    assert verdict(Reason.EXIT, 75, policy=only).move is Move.RETRY
    assert verdict(Reason.EXIT, signal=9, policy=only).move is Move.RETRY
    assert verdict(Reason.EXIT, 1, policy=only) == Verdict(Move.FAIL, Reason.EXIT)
    timeouts = RetryPolicy(max_attempts=2, on_reasons=("exit",))
    assert verdict(Reason.TIMEOUT, policy=timeouts) == Verdict(Move.TIME_OUT, Reason.TIMEOUT)


def test_jitter_depends_on_the_execution() -> None:
    spread = RetryPolicy(max_attempts=2, backoff_seconds=7, jitter=1)
    waits = {verdict(Reason.EXIT, 1, policy=spread, seed=bytes([n])).retry_seconds for n in range(50)}
    assert len(waits) == 50
    assert max(waits) <= 7


@pytest.mark.parametrize(("seconds_left", "move"), [(7.1, Move.RETRY), (7, Move.FAIL), (-1, Move.FAIL)])
def test_no_try_starts_after_the_deadline(seconds_left: float, move: Move) -> None:
    assert verdict(Reason.EXIT, 1, policy=TWICE, seconds_left=seconds_left).move is move
    unavailable = verdict(Reason.ARTIFACT_UNAVAILABLE, started=False, attempt=3, seconds_left=seconds_left)
    assert unavailable.move is Move.FAIL, "the wait would be eight seconds"


def test_a_run_that_its_deadline_ended_says_so() -> None:
    assert verdict(Reason.TIMEOUT, policy=TWICE, seconds_left=-0.1) == Verdict(Move.TIME_OUT, Reason.DEADLINE)
    assert verdict(Reason.TIMEOUT, seconds_left=5) == Verdict(Move.TIME_OUT, Reason.TIMEOUT)
    assert verdict(Reason.EXIT, 0, seconds_left=-5).move is Move.SUCCEED, "done is done"


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("repeatable", [True, False])
def test_a_cancel_wins_over_everything(reason: Reason, repeatable: bool) -> None:
    judged = verdict(reason, 0, cancelled=True, policy=TWICE, repeatable=repeatable)
    assert judged == Verdict(Move.CANCEL, Reason.CANCELLED)


def test_a_release_burns_no_try_whatever_was_used() -> None:
    assert verdict(Reason.RELEASED, tries_used=99) == Verdict(Move.RELEASE, Reason.RELEASED, burns_try=False)


@pytest.mark.parametrize(
    ("reason", "exit_code", "move"),
    [
        (Reason.RELEASED, None, Move.FAIL),
        (Reason.EXIT, 1, Move.FAIL),
        (Reason.TIMEOUT, None, Move.TIME_OUT),
        (Reason.EXIT, 0, Move.SUCCEED),
    ],
)
def test_what_may_not_be_repeated_ends_here(reason: Reason, exit_code: int | None, move: Move) -> None:
    judged = verdict(reason, exit_code, policy=TWICE, repeatable=False)
    assert (judged.move, judged.reason) == (move, reason)
    assert MOVES[judged.move][1] in TERMINAL


@given(
    reason=st.sampled_from(Reason),
    exit_code=st.none() | st.integers(0, 255),
    cancelled=st.booleans(),
    started=st.booleans(),
    tries_used=st.integers(0, 200),
    repeatable=st.booleans(),
)
def test_every_verdict_is_a_legal_move(
    *, reason: Reason, exit_code: int | None, cancelled: bool, started: bool, tries_used: int, repeatable: bool
) -> None:
    judged = verdict(
        reason,
        exit_code,
        cancelled=cancelled,
        started=started,
        tries_used=tries_used,
        policy=TWICE,
        repeatable=repeatable,
    )
    state = State.RUNNING if started else State.CLAIMED
    if judged.move is not Move.SUCCEED:  # a success that never started is refused by the fence
        assert (state, MOVES[judged.move][1]) in LEGAL
    never_ran = reason is Reason.ARTIFACT_UNAVAILABLE and not started
    assert judged.burns_try or judged.move is Move.RELEASE or never_ran


def test_a_secret_that_cannot_be_given_is_tried_again_as_the_policy_says() -> None:
    missing = Reason.SECRET_UNAVAILABLE
    assert verdict(missing, started=False) == Verdict(Move.FAIL, missing)
    assert verdict(missing, started=False, policy=TWICE) == Verdict(Move.RETRY, missing, retry_seconds=7)
    only = RetryPolicy(max_attempts=2, on_reasons=("exit",))
    assert verdict(missing, started=False, policy=only).move is Move.FAIL


def test_an_outage_of_the_object_store_uses_up_no_try() -> None:
    def unavailable(attempt: int, *, repeatable: bool = True, started: bool = False) -> Verdict:
        return judge(
            reason=Reason.ARTIFACT_UNAVAILABLE,
            exit_code=None,
            cancelled=False,
            started=started,
            tries_used=0,
            policy=RetryPolicy(),
            repeatable=repeatable,
            attempt=attempt,
        )

    assert unavailable(1) == Verdict(Move.RETRY, Reason.ARTIFACT_UNAVAILABLE, retry_seconds=2, burns_try=False)
    assert unavailable(29).retry_seconds == 60
    assert unavailable(30).move is Move.FAIL
    assert unavailable(1, repeatable=False).move is Move.FAIL
    assert unavailable(1, started=True).move is Move.FAIL, "its outputs could not be stored: it did run"
