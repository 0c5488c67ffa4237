"""The audit of attempts: violations, and cases that are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs.verify.attempt_check import AttemptChecker, AttemptRow, LimitHistory, Violation

START = datetime(2030, 1, 1, tzinfo=UTC)
TOLERANCE = timedelta(seconds=1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def attempt(
    execution: str,
    placed: float,
    ended: float | None,
    *,
    number: int = 1,
    job: str = "job",
    limit: int | None = None,
    queue: str | None = "queue",
    is_live: bool = False,
) -> AttemptRow:
    end = None if ended is None else at(ended)
    return AttemptRow(execution, number, at(placed), end, is_live, job, limit, queue)


def check(*rows: AttemptRow, from_: float = 0, queues: dict[str, LimitHistory] | None = None) -> AttemptChecker:
    checker = AttemptChecker(at(from_), queues or {}, TOLERANCE, examples=10)
    for row in sorted(rows, key=lambda row: row.placed_at):
        checker.take(row)
    return checker


def found(checker: AttemptChecker) -> dict[str, int]:
    return {what.value: count for what, count in checker.found.items()}


def test_consecutive_attempts_are_clean() -> None:
    checker = check(attempt("a", 0, 5), attempt("a", 5, 9, number=2), attempt("a", 9, None, number=3, is_live=True))
    assert (found(checker), checker.attempts, checker.peak) == ({}, 3, 1)


@pytest.mark.parametrize("ended", [6, None])
def test_attempt_placed_before_the_previous_one_finished_overlaps(ended: float | None) -> None:
    checker = check(attempt("a", 0, ended, is_live=True), attempt("a", 5, 9, number=2))
    assert found(checker) == {"overlapping": 1}
    assert checker.findings[0].execution_id == "a"
    assert checker.findings[0].at == at(5)


def test_only_attempts_over_the_job_limit_are_found() -> None:
    two = [attempt("a", 0, 10, limit=2), attempt("b", 1, 10, limit=2)]
    assert found(check(*two, attempt("c", 10, 12, limit=2))) == {}
    checker = check(*two, attempt("c", 9, 12, limit=2))
    assert found(checker) == {"over_job_limit": 1}
    assert (checker.findings[0].active, checker.findings[0].limit) == (3, 2)


def test_jobs_are_counted_separately_and_may_have_no_limit() -> None:
    others = [attempt(str(n), 0, 10, job=str(n), limit=1) for n in range(5)]
    unlimited = [attempt(f"u{n}", 0, 10, job="free") for n in range(5)]
    assert found(check(*others, *unlimited)) == {}


def test_lowered_limit_does_not_apply_to_earlier_placements() -> None:
    assert found(check(*(attempt(str(n), n, 20, limit=5) for n in range(5)), attempt("z", 20, 21, limit=1))) == {}


def test_attempts_before_the_range_count_but_are_not_checked() -> None:
    before = [attempt("a", -9, 10, limit=1), attempt("b", -8, 10, limit=1)]
    checker = check(*before, attempt("c", 1, 2, limit=1))
    assert (found(checker), checker.attempts) == ({"over_job_limit": 1}, 1)
    assert checker.findings[0].execution_id == "c"


def test_queue_limit_of_the_time_applies() -> None:
    history = {"queue": LimitHistory([(at(-10), 1), (at(100), 2)])}
    early = [attempt("a", 0, 200, job="a"), attempt("b", 50, 60, job="b")]
    assert found(check(*early, queues=history)) == {"over_queue_limit": 1}
    assert found(check(early[0], attempt("c", 101, 110, job="c"), queues=history)) == {}
    assert found(check(early[0], attempt("c", 99.5, 110, job="c"), queues=history)) == {}, "within the tolerance"


def test_unknown_limits_and_queues_are_not_checked() -> None:
    unknown = {"queue": LimitHistory([(at(10), 1)])}
    assert found(check(attempt("a", 0, 9, job="a"), attempt("b", 1, 9, job="b"), queues=unknown)) == {}
    limits = {"queue": LimitHistory([(at(-10), 1)])}
    moved = attempt("a", 0, 9, job="a", queue=None)
    assert found(check(moved, attempt("b", 1, 9, job="b"), queues=limits)) == {}
    unlimited = {"queue": LimitHistory([(at(-10), None)])}
    assert found(check(attempt("a", 0, 9, job="a"), attempt("b", 1, 9, job="b"), queues=unlimited)) == {}


def test_inactive_attempt_without_end_is_found_and_not_counted() -> None:
    checker = check(attempt("a", 0, None), attempt("b", 5, 6, limit=1))
    assert found(checker) == {"never_ended": 1}


def test_findings_are_limited_and_counts_are_not() -> None:
    checker = check(*(attempt(str(n), n, 100, limit=1) for n in range(20)))
    assert found(checker) == {"over_job_limit": 19}
    assert len(checker.findings) == 10
    assert checker.peak == 20


def test_finding_as_json() -> None:
    checker = check(attempt("a", 0, 9, limit=1), attempt("b", 1, 9, limit=1))
    assert checker.findings[0].as_json() == {
        "what": Violation.OVER_JOB_LIMIT.value, "execution_id": "b", "at": "2030-01-01T00:00:01Z",
        "active": 2, "limit": 1,
    }  # fmt: skip
