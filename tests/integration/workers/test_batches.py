"""Claims, starts and successes that share a statement: each keeps its own fence, answer and durability."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import psycopg
import pytest
from django.db import DatabaseError, connection

from jobs.domain.errors import StaleAttempt
from jobs.domain.states import Move, Reason
from jobs.domain.worker_protocol import AttemptFence, ClaimedRun, MovedExecution, Registration, RunReport, RunStart
from jobs.execution import attempts, transitions
from jobs.execution.attempts import FinishedRun
from jobs.execution.transitions import AttemptOutcome
from jobs.fleet import leases
from jobs.models import Attempt, Dependency, Execution
from tests.support.barriers import at_once
from tests.support.factories import (
    claim_on,
    make_execution,
    make_job,
    make_schedule,
    make_worker,
    place_on,
    run_on,
)
from tests.support.own_connection import own_connection
from tests.support.waiting import wait_for
from workers.control_plane import direct
from workers.control_plane.direct import DirectControlPlane

pytestmark = pytest.mark.django_db(transaction=True)

DONE = RunReport(Reason.EXIT, exit_code=0, result={"rows": 3}, cpu_seconds=0.5)
START = RunStart({"namespaces": ["pid"]}, seconds_ago=0.02)
LONG_PAUSE_SECONDS = 0.3  # all threads of a test call within it, on most machines; nothing depends on it


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> DirectControlPlane:
    """A control plane whose first call goes alone and whose next ones share a batch."""
    monkeypatch.setattr(direct, "BATCH_PAUSE_SECONDS", LONG_PAUSE_SECONDS)
    return DirectControlPlane()


def states() -> dict[object, str]:
    return dict(Execution.objects.values_list("id", "state"))


def answer(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - it is what the test looks at
        return type(error)


def test_stale_claim_fails_only_itself(plane: DirectControlPlane) -> None:
    worker = make_worker()
    fences = [place_on(worker, make_execution()) for _ in range(6)]
    stale = replace(fences[2], attempt=2)
    claims = at_once([partial(answer, partial(plane.claim, each)) for each in (*fences[:2], stale, *fences[3:])])
    assert [type(claim) if isinstance(claim, ClaimedRun) else claim for claim in claims] == [
        ClaimedRun, ClaimedRun, StaleAttempt, ClaimedRun, ClaimedRun, ClaimedRun,
    ]  # fmt: skip
    assert {claim.execution_id for claim in claims if isinstance(claim, ClaimedRun)} == {
        each.execution_id for each in fences if each != fences[2]
    }
    assert states()[fences[2].execution_id] == "queued"


def place_again(worker: Registration, fence: AttemptFence) -> AttemptFence:
    assert transitions.return_unclaimed(include_recent=True) == 1
    return place_on(worker, Execution.objects.get(id=fence.execution_id))


def test_late_message_gets_nothing_of_the_next_attempt_in_its_batch(plane: DirectControlPlane) -> None:
    """A worker that was away for a while finds the messages of both attempts."""
    worker = make_worker()
    late = place_on(worker, make_execution())
    present = place_again(worker, late)
    plane.claim(place_on(worker, make_execution()))
    claims = at_once([partial(answer, partial(plane.claim, each)) for each in (late, present)])
    assert claims[0] is StaleAttempt
    assert isinstance(claims[1], ClaimedRun)
    assert claims[1].attempt == present.attempt


def test_late_success_gets_nothing_of_the_next_attempt_in_its_batch(plane: DirectControlPlane) -> None:
    worker = make_worker()
    late = run_on(worker, make_execution())
    transitions.finish(late, AttemptOutcome(Move.RELEASE, Reason.RELEASED))
    present = run_on(worker, Execution.objects.get(id=late.execution_id))
    plane.finish(run_on(worker, make_execution()), DONE)
    ends = at_once([partial(answer, partial(plane.finish, each, DONE)) for each in (late, present)])
    assert ends[0] is StaleAttempt
    assert isinstance(ends[1], MovedExecution)


def store_starts(plane: DirectControlPlane, *fences: AttemptFence) -> None:
    """Store these starts in one batch, without the thread."""
    plane._starts._unstored = {fence: (time.monotonic(), START.receipt) for fence in fences}
    plane._store_starts(dict.fromkeys(fences, START))


def test_late_start_gets_nothing_of_the_next_attempt_in_its_batch(plane: DirectControlPlane) -> None:
    stopped: list[AttemptFence] = []
    plane.on_stale = stopped.append
    worker = make_worker()
    late = claim_on(worker, make_execution())
    transitions.finish(late, AttemptOutcome(Move.RELEASE, Reason.RELEASED))
    present = claim_on(worker, Execution.objects.get(id=late.execution_id))
    store_starts(plane, late, present)
    assert stopped == [late]
    assert states()[present.execution_id] == "running"


def test_stale_success_fails_only_itself() -> None:
    worker = make_worker()
    fences = [run_on(worker, make_execution()) for _ in range(3)]
    runs = [FinishedRun(fence, DONE, None) for fence in fences]
    runs[1] = FinishedRun(replace(fences[1], incarnation=fences[1].incarnation + 1), DONE, None)
    moved = attempts.finish_at_once(runs)
    assert {each.execution_id for each in moved} == {fences[0].execution_id, fences[2].execution_id}
    assert states()[fences[1].execution_id] == "running"


@pytest.mark.parametrize(
    ("what", "table", "column"),
    [
        *((what, "jobs_execution", "id") for what in ("claim", "start", "success")),
        # As a log does that is being stored.
        *((what, "jobs_attempt", "execution_id") for what in ("start", "success")),
    ],
)
def test_locked_row_delays_no_other(what: str, table: str, column: str) -> None:
    worker = make_worker()
    prepare = place_on if what == "claim" else claim_on
    locked, free = (prepare(worker, make_execution()) for _ in range(2))
    with own_connection() as other:
        lock = psycopg.sql.SQL("SELECT FROM {} WHERE {} = %s FOR UPDATE")
        other.execute(lock.format(psycopg.sql.Identifier(table), psycopg.sql.Identifier(column)), [locked.execution_id])
        match what:
            case "claim":
                moved = [run.execution_id for run in attempts.claim_at_once([locked, free])]
            case "start":
                moved = attempts.start_at_once({locked: START, free: START})
            case _:
                ended = attempts.finish_at_once([FinishedRun(each, DONE, START) for each in (locked, free)])
                moved = [each.execution_id for each in ended]
    assert moved == [free.execution_id]


def test_claim_waits_for_a_short_lock(plane: DirectControlPlane) -> None:
    fence = place_on(make_worker(), make_execution())
    with own_connection() as other:
        other.execute("SELECT FROM jobs_execution WHERE id = %s FOR UPDATE", [fence.execution_id])

        def release() -> None:
            wait_for(lambda: blocked_by(other.info.backend_pid), "the claim waits for the lock")
            other.rollback()

        claimed, _ = at_once([lambda: plane.claim(fence), release])
    assert isinstance(claimed, ClaimedRun)


@pytest.mark.parametrize("end", [False, True])
def test_start_and_success_wait_for_a_short_lock_of_the_attempt(plane: DirectControlPlane, *, end: bool) -> None:
    fence = claim_on(make_worker(), make_execution())
    with own_connection() as other:
        other.execute("SELECT FROM jobs_attempt WHERE execution_id = %s FOR UPDATE", [fence.execution_id])

        def release() -> None:
            wait_for(lambda: blocked_by(other.info.backend_pid), "the statement waits for the lock")
            other.rollback()

        call = partial(attempts.finish_attempt, fence, DONE, START) if end else partial(store_starts, plane, fence)
        at_once([call, release])
    assert states()[fence.execution_id] == ("succeeded" if end else "running")


def blocked_by(backend_pid: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))", [backend_pid])
        return cursor.fetchone() is not None


def test_row_that_postgres_refuses_fails_only_itself(plane: DirectControlPlane) -> None:
    worker = make_worker()
    fences = [run_on(worker, make_execution()) for _ in range(5)]
    reports = [DONE, DONE, replace(DONE, result={"text": "\0"}), DONE, DONE]
    ends = at_once(
        [partial(answer, partial(plane.finish, fence, report)) for fence, report in zip(fences, reports, strict=True)]
    )
    assert [isinstance(end, MovedExecution) for end in ends] == [True, True, False, True, True]
    assert isinstance(ends[2], type)
    assert issubclass(ends[2], DatabaseError)
    assert [states()[fence.execution_id] for fence in fences].count("succeeded") == 4


def test_answered_end_is_committed(plane: DirectControlPlane) -> None:
    worker = make_worker()
    fences = [run_on(worker, make_execution()) for _ in range(8)]

    def finish_and_look(fence: AttemptFence) -> object:
        plane.finish(fence, DONE)
        with own_connection() as other:
            return other.execute("SELECT state FROM jobs_execution WHERE id = %s", [fence.execution_id]).fetchone()

    assert at_once([partial(finish_and_look, each) for each in fences]) == [("succeeded",)] * 8


def test_short_run_is_stored_with_its_start(plane: DirectControlPlane) -> None:
    fence = claim_on(make_worker(), make_execution())
    moved = attempts.finish_attempt(fence, DONE, START)
    assert moved.state == "succeeded"
    execution, attempt = (
        Execution.objects.get(id=fence.execution_id),
        Attempt.objects.get(execution_id=fence.execution_id),
    )
    assert execution.claimed_at is not None
    assert execution.ended_at is not None
    assert attempt.started_at == execution.started_at
    assert execution.started_at is not None
    assert execution.claimed_at <= execution.started_at < execution.ended_at
    assert (attempt.receipt, attempt.cpu_seconds, execution.result) == (START.receipt, 0.5, {"rows": 3})


@pytest.mark.parametrize(
    ("report", "state"),
    [
        (RunReport(Reason.EXIT, exit_code=3), "failed"),
        (RunReport(Reason.TIMEOUT), "timed_out"),
        (RunReport(Reason.RELEASED), "ready"),
        (RunReport(Reason.CANCELLED), "cancelled"),
    ],
)
def test_every_end_of_a_short_run_stores_its_start(report: RunReport, state: str) -> None:
    fence = claim_on(make_worker(), make_execution())
    assert attempts.finish_attempt(fence, report, START).state == state
    attempt = Attempt.objects.get(execution_id=fence.execution_id)
    assert attempt.started_at is not None
    assert attempt.receipt == START.receipt


def test_success_without_a_start_is_refused() -> None:
    """A worker that reports success of a run that it never started has a bug."""
    fence = claim_on(make_worker(), make_execution())
    with pytest.raises(StaleAttempt):
        attempts.finish_attempt(fence, DONE)


def test_run_that_goes_on_becomes_running(plane: DirectControlPlane) -> None:
    fence = claim_on(make_worker(), make_execution())
    plane.start(fence, START.receipt)
    wait_for(lambda: states()[fence.execution_id] == "running", "its start is stored")
    assert plane.finish(fence, DONE) == MovedExecution(
        fence.execution_id, *Execution.objects.values_list("job_id", "run_id", "state").get(id=fence.execution_id)
    )


def test_run_that_was_reassigned_is_stopped(plane: DirectControlPlane) -> None:
    stopped: list[AttemptFence] = []
    plane.on_stale = stopped.append
    worker = make_worker()
    fence, other = (claim_on(worker, make_execution()) for _ in range(2))
    leases.drain_worker(worker)
    transitions.lose_executions({worker.worker_id: None}, only=[fence.execution_id])
    plane.start(fence, START.receipt)
    plane.start(other, START.receipt)
    wait_for(lambda: stopped, "the run is stopped")
    assert stopped == [fence]
    wait_for(lambda: states()[other.execution_id] == "running", "the other start is stored")


def test_success_with_follow_ups_is_finished_by_itself(plane: DirectControlPlane) -> None:
    """Its dependent is created in the same transaction."""
    worker = make_worker()
    upstream = make_job()
    dependent = make_job(owner=upstream.owner)
    Dependency.objects.create(job=dependent, upstream=upstream)
    make_schedule(job=upstream)
    fences = [run_on(worker, make_execution(job=job)) for job in (upstream, make_job())]
    at_once([partial(plane.finish, each, DONE) for each in fences])
    assert [states()[fence.execution_id] for fence in fences] == ["succeeded", "succeeded"]
    assert Execution.objects.get(job=dependent).state == "ready"


@contextmanager
def waiting_to_update(fence: AttemptFence) -> Iterator[None]:
    """Let the update of this attempt wait for an advisory lock: a locked row would be left out."""
    with own_connection(autocommit=True) as owner:
        owner.execute(
            "CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'"
        )
        trigger = psycopg.sql.SQL(
            "CREATE TRIGGER wait_for_test BEFORE UPDATE ON jobs_attempt FOR EACH ROW WHEN (NEW.execution_id = {})"
            " EXECUTE FUNCTION wait_for_test()"
        )
        owner.execute(trigger.format(str(fence.execution_id)))
        try:
            yield
        finally:
            owner.execute("DROP FUNCTION wait_for_test CASCADE")


def test_worker_killed_in_the_middle_of_a_batch_has_finished_nothing() -> None:
    worker = make_worker()
    fences = [run_on(worker, make_execution()) for _ in range(4)]
    connection.close()
    with waiting_to_update(fences[-1]), own_connection() as other:
        other.execute("SELECT pg_advisory_xact_lock(1)")
        if (child := os.fork()) == 0:
            attempts.finish_at_once([FinishedRun(fence, DONE, None) for fence in fences])
            os._exit(0)
        with own_connection(autocommit=True) as watcher:
            blocked = "SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
            ((backend_pid,),) = wait_for(
                lambda: watcher.execute(blocked, [other.info.backend_pid]).fetchall(), "the batch waits"
            )
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            # As Postgres does when it notices that its client is gone.
            watcher.execute("SELECT pg_terminate_backend(%s)", [backend_pid])
            living = "SELECT FROM pg_stat_activity WHERE pid = %s"
            wait_for(lambda: not watcher.execute(living, [backend_pid]).rowcount, "its backend has ended")
    assert [states()[fence.execution_id] for fence in fences] == ["running"] * 4
    assert {attempts.finish_attempt(fence, DONE).state for fence in fences} == {"succeeded"}
