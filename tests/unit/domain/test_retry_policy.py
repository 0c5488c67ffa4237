"""Retry delays grow, stop at the cap and end with the tries."""

import math
from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.domain.errors import InvalidInput
from jobs.domain.retry_policy import (
    RETRY_REASONS,
    Failure,
    RetryPolicy,
    compute_backoff,
    decide_retry,
    parse_retry_policy,
)
from jobs.domain.states import Reason

fast = settings(deadline=None, database=None, max_examples=200)

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    backoff_seconds=st.floats(0, 86_400),
    backoff_factor=st.floats(1, 10),
    max_backoff_seconds=st.floats(0, 86_400),
)
TEN = RetryPolicy(max_attempts=10)


class TestJitter:
    @fast
    @given(policies, st.floats(0, 1), st.integers(0, 10**6), st.binary(max_size=16))
    def test_only_shortens_and_by_no_more_than_its_share(
        self, policy: RetryPolicy, jitter: float, tries_used: int, seed: bytes
    ) -> None:
        whole, cut = (
            compute_backoff(policy, tries_used),
            compute_backoff(replace(policy, jitter=jitter), tries_used, seed),
        )
        assert whole * (1 - jitter) - timedelta(microseconds=2) <= cut <= whole <= timedelta(days=1)

    def test_is_fixed_for_a_try_and_spreads_over_others(self) -> None:
        policy = RetryPolicy(backoff_seconds=100, backoff_factor=1, jitter=1)
        seeds = [n.to_bytes(16, "big") for n in range(1000)]
        delays = [compute_backoff(policy, 1, seed).total_seconds() for seed in seeds]
        assert delays == [compute_backoff(policy, 1, seed).total_seconds() for seed in seeds]
        assert delays != [compute_backoff(policy, 2, seed).total_seconds() for seed in seeds]
        tenths = [int(delay // 10) for delay in delays]
        assert all(60 < tenths.count(tenth) < 140 for tenth in range(10)), "evenly distributed"


class TestCovering:
    @pytest.mark.parametrize(
        ("policy", "failure", "again"),
        [
            (TEN, Failure(Reason.EXIT, 1), True),
            (replace(TEN, on_exit_codes=(75, 99)), Failure(Reason.EXIT, 75), True),
            (replace(TEN, on_exit_codes=(75, 99)), Failure(Reason.EXIT, 1), False),
            (replace(TEN, on_exit_codes=(75,)), Failure(Reason.EXIT, None, 9), False),
            (replace(TEN, on_exit_codes=(137,)), Failure(Reason.EXIT, None, 9), True),
            (replace(TEN, on_exit_codes=(75,)), Failure(Reason.TIMEOUT), True),
            (replace(TEN, not_on_exit_codes=(2,)), Failure(Reason.EXIT, 2), False),
            (replace(TEN, not_on_exit_codes=(2,)), Failure(Reason.EXIT, 3), True),
            (replace(TEN, not_on_exit_codes=(143,)), Failure(Reason.EXIT, None, 15), False),
            (replace(TEN, on_reasons=("timeout",)), Failure(Reason.TIMEOUT), True),
            (replace(TEN, on_reasons=("timeout",)), Failure(Reason.EXIT, 1), False),
            (replace(TEN, on_reasons=("exit",), on_exit_codes=(75,)), Failure(Reason.EXIT, 1), False),
        ],
    )
    def test_by_exit_code_signal_and_reason(self, policy: RetryPolicy, failure: Failure, again: bool) -> None:
        assert (decide_retry(policy, tries_used=1, failure=failure) is not None) is again
        assert decide_retry(policy, tries_used=10, failure=failure) is None, "no rule adds tries"


class TestBackoff:
    def test_grows_from_the_first_delay_to_the_cap(self) -> None:
        policy = RetryPolicy(max_attempts=9, backoff_seconds=5, backoff_factor=2, max_backoff_seconds=60)
        assert [compute_backoff(policy, tries).total_seconds() for tries in range(1, 7)] == [5, 10, 20, 40, 60, 60]

    def test_a_factor_of_one_is_constant(self) -> None:
        policy = RetryPolicy(max_attempts=9, backoff_seconds=7.5, backoff_factor=1)
        assert {compute_backoff(policy, tries) for tries in (1, 2, 50, 10**30)} == {timedelta(seconds=7.5)}

    @fast
    @given(policies, st.integers(1, 10**6))
    def test_never_shrinks_and_never_exceeds_the_cap(self, policy: RetryPolicy, tries_used: int) -> None:
        delay = compute_backoff(policy, tries_used)
        assert timedelta(0) <= delay <= compute_backoff(policy, tries_used + 1)
        assert delay <= timedelta(seconds=policy.max_backoff_seconds)

    @pytest.mark.parametrize("factor", [1.0000001, 2, 10, 1e308, math.inf])
    @pytest.mark.parametrize("tries_used", [10**9, 10**400])
    def test_huge_numbers_reach_the_cap(self, factor: float, tries_used: int) -> None:
        policy = RetryPolicy(max_attempts=100, backoff_seconds=1, backoff_factor=factor, max_backoff_seconds=3600)
        assert compute_backoff(policy, tries_used) == timedelta(hours=1)

    @pytest.mark.parametrize("tries_used", [0, 1, 3, 10**400])
    def test_zero_backoff_stays_zero(self, tries_used: int) -> None:
        policy = RetryPolicy(max_attempts=100, backoff_seconds=0, backoff_factor=math.inf)
        assert compute_backoff(policy, tries_used) == timedelta(0)


class TestDecide:
    def test_default_is_no_retry(self) -> None:
        assert decide_retry(RetryPolicy(), tries_used=1) is None

    @fast
    @given(policies)
    def test_an_execution_is_tried_exactly_max_attempts_times(self, policy: RetryPolicy) -> None:
        tries = 1
        while (delay := decide_retry(policy, tries_used=tries)) is not None:
            assert delay == compute_backoff(policy, tries)
            tries += 1
        assert tries == policy.max_attempts
        assert decide_retry(policy, tries_used=tries + 1) is None

    def test_released_run_waits_the_first_delay(self) -> None:
        policy = RetryPolicy(max_attempts=2, backoff_seconds=5)
        assert decide_retry(policy, tries_used=0) == timedelta(seconds=5)


class TestParsing:
    def test_defaults(self) -> None:
        assert parse_retry_policy({}) == RetryPolicy(1, 5, 2, 3600)

    def test_all_keys(self) -> None:
        values = {
            "max_attempts": 3, "backoff_seconds": 0.5, "backoff_factor": 1, "max_backoff_seconds": 10, "jitter": 0.25,
            "on_exit_codes": [9, 1, 9], "not_on_exit_codes": None, "on_reasons": ["timeout", "exit"],
        }  # fmt: skip
        policy = parse_retry_policy(values)
        assert policy == RetryPolicy(3, 0.5, 1, 10, 0.25, (1, 9), None, ("exit", "timeout"))
        assert parse_retry_policy(asdict(policy)) == policy

    @pytest.mark.parametrize("key", ["on_exit_codes", "not_on_exit_codes"])
    @pytest.mark.parametrize("value", [[], 3, "3", [0], [256], [True], ["1"], [1.5], [None], {1: 1}])
    def test_refuses_invalid_exit_codes(self, key: str, value: object) -> None:
        self.refused(f"retry.{key}", {key: value})

    @pytest.mark.parametrize("value", [[], "exit", ["boredom"], ["lost"], ["cancelled"], [1], [None], [[]]])
    def test_refuses_invalid_reasons(self, value: object) -> None:
        self.refused("retry.on_reasons", {"on_reasons": value})

    def test_refuses_two_exit_code_rules(self) -> None:
        self.refused("retry.not_on_exit_codes", {"on_exit_codes": [1], "not_on_exit_codes": [2]})

    def test_every_failure_reason_can_be_listed(self) -> None:
        assert parse_retry_policy({"on_reasons": list(RETRY_REASONS)}).on_reasons == RETRY_REASONS
        # The policy does not cover executions that never ran, nor attempts that were lost, released or cancelled.
        others = {"cancelled", "lost", "released", "deadline", "catch_up", "overlap", "backlog", "dependency"}
        assert set(RETRY_REASONS) == set(Reason) - others

    @pytest.mark.parametrize(("key", "low", "high"), [
        ("max_attempts", 1, 100), ("backoff_seconds", 0, 86_400), ("backoff_factor", 1, 10),
        ("max_backoff_seconds", 5, 86_400), ("jitter", 0, 1),
    ])  # fmt: skip
    def test_limits_are_inclusive(self, key: str, low: int, high: int) -> None:
        assert getattr(parse_retry_policy({key: low}), key) == low
        assert getattr(parse_retry_policy({key: high}), key) == high
        for outside in (low - 1, high + 1, -high, 10**400):
            self.refused(f"retry.{key}", {key: outside})

    @pytest.mark.parametrize(
        "key", ["max_attempts", "backoff_seconds", "backoff_factor", "max_backoff_seconds", "jitter"]
    )
    @pytest.mark.parametrize("value", [None, "3", True, math.nan, math.inf, -math.inf, [3], {}])
    def test_refuses_non_numbers(self, key: str, value: object) -> None:
        self.refused(f"retry.{key}", {key: value})

    def test_tries_are_whole(self) -> None:
        self.refused("retry.max_attempts", {"max_attempts": 2.0})

    def test_unknown_keys_are_named(self) -> None:
        self.refused("retry.max_retries", {"max_retries": 3})
        self.refused("retry." + "x" * 64, {"x" * 10_000: 3})

    def test_the_cap_is_never_below_the_first_delay(self) -> None:
        assert parse_retry_policy({"backoff_seconds": 7200}).max_backoff_seconds == 7200
        self.refused("retry.max_backoff_seconds", {"backoff_seconds": 20, "max_backoff_seconds": 10})

    @fast
    @given(st.dictionaries(
        st.sampled_from([*asdict(RetryPolicy()), "x"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(0, 300)),
    ))  # fmt: skip
    def test_any_input_is_refused_or_usable(self, values: dict[str, object]) -> None:
        try:
            policy = parse_retry_policy(values)
        except InvalidInput:
            return
        assert timedelta(0) <= compute_backoff(policy, policy.max_attempts, b"seed") <= timedelta(days=1)

    def refused(self, field: str, values: dict[str, object]) -> None:
        with pytest.raises(InvalidInput) as caught:
            parse_retry_policy(values)
        assert caught.value.field == field
        assert caught.value.message.endswith(".")
