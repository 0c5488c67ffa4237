"""The reaper reclaims executions once, and counts them as lost only if they were claimed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models import F
from pytest_django import Settings

from jobs.db import sql
from jobs.dispatch.explain import explain_execution
from jobs.dispatch.placement import place_ready_executions
from jobs.domain import limits
from jobs.domain.errors import StaleAttempt
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import Chunk, RunReport, WorkerUsage
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.fleet import leases, reaping
from jobs.fleet.reaping import ReapResult, reap_lost_workers
from jobs.logs.store import append_chunks
from jobs.models import Attempt, Dependency, Execution, ExecutionEvent, ReaperStamp, Worker
from tests.support import factories
from tests.support.factories import claim_on, hold_of, make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db

LEASE = 30.0
DONE = RunReport(Reason.EXIT, exit_code=0)


@pytest.fixture(autouse=True)
def _beats_were_there(db: None) -> None:
    factories.stamp_reaping()


def end_leases() -> None:
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))


def placed_long_ago() -> None:
    Execution.objects.update(placed_at=datetime.now(UTC) - timedelta(seconds=limits.UNCLAIMED_TIMEOUT_SECONDS + 1))


def test_live_worker_is_left_alone() -> None:
    run_on(make_worker(), make_execution())
    assert reap_lost_workers() == ReapResult()


def test_placement_that_raced_a_drain_is_released() -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    Worker.objects.update(status="draining")
    assert reap_lost_workers() == ReapResult(released=1)
    execution.refresh_from_db()
    assert (execution.state, execution.worker_id) == ("ready", None)
    assert reap_lost_workers() == ReapResult()


@pytest.mark.parametrize("status", ["online", "suspect", "draining"])
@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_ended_lease_moves_the_execution_to_its_second_attempt(status: str, prepare: type) -> None:
    execution = make_execution()
    hold = prepare(make_worker(), execution)
    Worker.objects.update(status=status)
    end_leases()
    assert reap_lost_workers() == ReapResult(workers=1, executions=1)
    assert Worker.objects.get().status == "lost"
    execution.refresh_from_db()
    assert (execution.state, execution.times_lost, execution.tries_used) == ("ready", 1, 0)
    attempt = Attempt.objects.get()
    assert attempt.reason == "lost"
    assert attempt.ended_at is not None
    event = ExecutionEvent.objects.get(execution_id=execution.id)
    assert (event.name, event.attempt, event.detail["now"]) == ("execution.lost", 1, "ready")

    for write in (
        lambda: finish_attempt(hold, DONE),
        lambda: transitions.start(hold, {}),
        lambda: append_chunks(hold, [Chunk(0, "stdout", datetime.now(UTC), b"x")]),
    ):
        with pytest.raises(StaleAttempt):
            write()
    make_worker()
    place_ready_executions()
    assert hold_of(execution).attempt == 2
    assert reap_lost_workers() == ReapResult(), "once"


def test_queued_execution_is_not_counted_as_lost() -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    end_leases()
    reap_lost_workers()
    execution.refresh_from_db()
    assert (execution.state, execution.times_lost) == ("ready", 0)
    assert not Attempt.objects.exists()


def test_claimed_at_most_once_run_fails_as_lost() -> None:
    worker = make_worker()
    job = make_job(delivery="at_most_once", max_concurrency=None)
    taken, queued = make_execution(job=job), make_execution(job=job)
    run_on(worker, taken)
    place_on(worker, queued)
    end_leases()
    reap_lost_workers()
    taken.refresh_from_db()
    queued.refresh_from_db()
    assert (taken.state, taken.reason, queued.state) == ("failed", "lost", "ready")


def test_execution_lost_too_often_fails() -> None:
    execution = make_execution()
    for time in range(1, limits.MAX_LOST_ATTEMPTS + 1):
        run_on(make_worker(name="victim"), execution)
        end_leases()
        reap_lost_workers()
        execution.refresh_from_db()
        assert execution.state == ("failed" if time == limits.MAX_LOST_ATTEMPTS else "ready")
    assert (execution.reason, execution.attempt) == ("lost", limits.MAX_LOST_ATTEMPTS)


def test_requested_cancel_survives_the_loss() -> None:
    execution = make_execution()
    run_on(make_worker(), execution)
    transitions.cancel([execution.id], by="test")
    end_leases()
    reap_lost_workers()
    execution.refresh_from_db()
    assert (execution.state, execution.reason) == ("cancelled", "cancelled")


def test_final_loss_resolves_dependents() -> None:
    upstream = make_job(delivery="at_most_once")
    follower = make_job(owner=upstream.owner)
    Dependency.objects.create(job=follower, upstream=upstream, condition="failure")
    run_on(make_worker(), make_execution(job=upstream))
    end_leases()
    reap_lost_workers()
    assert Execution.objects.get(job=follower).state == "ready"


def test_placement_that_raced_a_registration_is_reclaimed() -> None:
    worker = make_worker()
    execution, kept = make_execution(), make_execution()
    place_on(worker, execution)
    Worker.objects.update(incarnation=worker.incarnation + 1)
    from jobs.domain.worker_protocol import Registration

    place_on(Registration(worker.worker_id, worker.incarnation + 1), kept)
    assert reap_lost_workers() == ReapResult(executions=1)
    execution.refresh_from_db()
    kept.refresh_from_db()
    assert (execution.state, kept.state) == ("ready", "queued")


@pytest.mark.parametrize("status", ["lost", "offline"])
def test_placement_that_raced_a_departure_is_reclaimed(status: str) -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    Worker.objects.update(status=status)
    assert reap_lost_workers() == ReapResult(executions=1)
    execution.refresh_from_db()
    assert execution.state == "ready"


def test_unclaimed_execution_is_placed_again() -> None:
    execution = make_execution()
    hold = place_on(make_worker(), execution)
    assert reap_lost_workers().unclaimed == 0
    placed_long_ago()
    assert reap_lost_workers().unclaimed == 1
    execution.refresh_from_db()
    assert (execution.state, execution.worker_id, execution.times_lost) == ("ready", None, 0)
    assert ExecutionEvent.objects.get(execution_id=execution.id).name == "execution.unclaimed"
    with pytest.raises(StaleAttempt):
        transitions.claim(hold)
    make_worker()
    place_ready_executions()
    assert hold_of(execution).attempt == 2


def test_worker_that_claims_nothing_is_suspect_and_gets_nothing() -> None:
    silent, diligent = make_worker(name="silent"), make_worker(name="diligent")
    place_on(silent, make_execution())
    running = run_on(silent, make_execution())
    claim_on(diligent, make_execution())
    placed_long_ago()
    assert reap_lost_workers() == ReapResult(unclaimed=1, suspects=1)
    assert dict(Worker.objects.values_list("name", "status")) == {"silent": "suspect", "diligent": "online"}
    place_ready_executions()
    assert Execution.objects.get(state="queued").worker_id == diligent.worker_id
    assert finish_attempt(running, DONE).state == "succeeded", "it finishes what it holds"
    assert reap_lost_workers() == ReapResult(), "its lease is alive"


@pytest.mark.parametrize("status", ["draining", "offline"])
def test_worker_that_is_not_online_is_not_suspect(status: str) -> None:
    place_on(make_worker(), make_execution())
    Worker.objects.update(status=status)
    placed_long_ago()
    assert reap_lost_workers().suspects == 0
    assert Worker.objects.get().status == status


def test_no_suspect_for_an_earlier_incarnation_or_lost_messages() -> None:
    place_on(make_worker(name="victim"), make_execution())
    placed_long_ago()
    assert reap_lost_workers(mark_suspects=False) == ReapResult(unclaimed=1)
    worker = make_worker(name="victim")
    place_on(worker, make_execution())
    placed_long_ago()
    Worker.objects.update(incarnation=worker.incarnation + 1)
    assert reap_lost_workers().suspects == 0


@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_claimed_execution_is_never_unclaimed(prepare: type) -> None:
    prepare(make_worker(), make_execution())
    placed_long_ago()
    assert reap_lost_workers() == ReapResult()


def lose_one() -> Execution:
    execution = make_execution()
    run_on(make_worker(), execution)
    end_leases()
    return execution


def test_after_a_gap_no_worker_is_lost_for_one_lease() -> None:
    lose_one()
    factories.stamp_reaping(ago=LEASE)
    assert reap_lost_workers() == ReapResult(), "the database or all beats were away: no worker could renew"
    assert reap_lost_workers() == ReapResult(), "nor in the next pass"
    factories.stamp_reaping(unbroken_for=LEASE - 2)
    assert reap_lost_workers() == ReapResult(), "nor while the lease lasts"
    factories.stamp_reaping(unbroken_for=LEASE)
    assert reap_lost_workers() == ReapResult(workers=1, executions=1)


def test_first_pass_counts_as_after_a_gap() -> None:
    ReaperStamp.objects.all().delete()
    lose_one()
    assert reap_lost_workers() == ReapResult()
    assert ReaperStamp.objects.count() == 1


def test_passes_of_several_beats_leave_no_gap() -> None:
    factories.stamp_reaping(unbroken_for=LEASE)
    before = ReaperStamp.objects.get()
    for _ in range(3):
        reap_lost_workers()
    after = ReaperStamp.objects.get()
    assert after.unbroken_since == before.unbroken_since
    assert after.stamped_at > before.stamped_at


def test_slow_pass_is_no_gap() -> None:
    lose_one()
    factories.stamp_reaping(ago=limits.REAP_INTERVAL_SECONDS * (limits.REAP_GAP_PASSES - 1))
    assert reap_lost_workers() == ReapResult(workers=1, executions=1)


def test_short_lease_does_not_make_every_pass_a_gap(settings: Settings) -> None:
    settings.PUNCTUAL_LEASE_SECONDS = 3.0
    lose_one()
    factories.stamp_reaping(ago=limits.REAP_INTERVAL_SECONDS * (limits.REAP_GAP_PASSES - 1))
    assert reap_lost_workers().workers == 1


def test_orphaned_executions_are_reclaimed_even_after_a_gap() -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    Worker.objects.update(status="offline")
    factories.stamp_reaping(ago=LEASE)
    assert reap_lost_workers() == ReapResult(executions=1), "no lease decided that"


def test_stamp_frozen_with_the_database_reaps_no_worker() -> None:
    """The clock is read, then everything freezes, then the statements continue."""
    lose_one()
    factories.stamp_reaping(ago=LEASE, unbroken_for=LEASE)
    parameters = {"gap_seconds": LEASE / 3, "lease_seconds": LEASE, "max_lease_seconds": 600.0, "limit": 100}
    assert sql.execute("mark_lost_workers", parameters) == 0
    factories.stamp_reaping(unbroken_for=LEASE)
    assert sql.execute("mark_lost_workers", parameters) == 1


def another_timeline() -> None:
    """As if a beat had seen the former primary last."""
    reap_lost_workers()
    ReaperStamp.objects.update(timeline=F("timeline") + 1)


def test_nothing_is_placed_for_one_lease_after_a_failover() -> None:
    another_timeline()
    make_worker()
    execution = make_execution()
    assert place_ready_executions().placed == 0, "even before any beat has noticed"
    reap_lost_workers()
    assert place_ready_executions().placed == 0
    assert "After a failover" in explain_execution(execution.id).words
    stamp = ReaperStamp.objects.get()
    assert stamp.placement_resumes_at is not None
    assert timedelta(0) < stamp.placement_resumes_at - datetime.now(UTC) <= timedelta(seconds=LEASE)
    ReaperStamp.objects.update(placement_resumes_at=datetime.now(UTC))
    assert place_ready_executions().placed == 1


def test_execution_queued_at_a_failover_is_returned_and_its_run_stopped() -> None:
    """Its worker claimed it on the former primary, which this one does not know."""
    worker, execution = make_worker(), make_execution()
    hold = place_on(worker, execution)
    another_timeline()
    assert reap_lost_workers() == ReapResult(unclaimed=1)
    assert Worker.objects.get().status == "online", "no worker is suspect"
    orders = leases.renew_lease(worker, [(hold.execution_id, hold.attempt)])
    assert [order.execution_id for order in orders] == [execution.id]


def test_no_worker_is_reaped_for_one_lease_after_a_failover() -> None:
    run_on(make_worker(), make_execution())
    another_timeline()
    end_leases()
    assert reap_lost_workers() == ReapResult()


def test_pause_after_a_failover_lasts_for_the_longest_granted_lease(settings: Settings) -> None:
    """A Celery worker that was not restarted since leases became shorter renews with its old setting."""
    settings.PUNCTUAL_LEASE_SECONDS = 60.0
    worker = make_worker()
    make_worker(name="gone")
    Worker.objects.filter(name="gone").update(status="lost", lease_until=datetime.now(UTC) + timedelta(seconds=500))
    leases.renew_lease(worker, [], WorkerUsage(runs=0, taken=0, load=0.0, memory_available_mb=1))
    settings.PUNCTUAL_LEASE_SECONDS = 6.0
    another_timeline()
    reap_lost_workers()
    resumes_at = ReaperStamp.objects.get().placement_resumes_at
    assert resumes_at is not None
    assert timedelta(seconds=50) < resumes_at - datetime.now(UTC) <= timedelta(seconds=60)


def test_worker_without_usage_reports_pauses_for_the_longest_possible_lease() -> None:
    make_worker()
    Worker.objects.update(registered_at=datetime.now(UTC) - timedelta(days=1))
    another_timeline()
    reap_lost_workers()
    resumes_at = ReaperStamp.objects.get().placement_resumes_at
    assert resumes_at is not None
    assert resumes_at - datetime.now(UTC) <= timedelta(seconds=limits.MAX_LEASE_SECONDS)


def test_after_a_gap_no_worker_is_lost_for_its_granted_lease(settings: Settings) -> None:
    settings.PUNCTUAL_LEASE_SECONDS = 6.0
    run_on(make_worker(), make_execution())
    ended_at = datetime.now(UTC) - timedelta(seconds=1)
    Worker.objects.update(lease_until=ended_at, usage={"at": (ended_at - timedelta(seconds=60)).isoformat()})
    factories.stamp_reaping(unbroken_for=50)
    assert reap_lost_workers() == ReapResult()
    factories.stamp_reaping(unbroken_for=61)
    assert reap_lost_workers() == ReapResult(workers=1, executions=1)


@pytest.mark.parametrize("known", [False, True])
def test_postgres_that_hides_its_timeline_places_and_warns_once(
    caplog: pytest.LogCaptureFixture, *, known: bool
) -> None:
    """Like Aurora, perhaps restored from a server that shows its timeline."""
    reaping._warn_timeline_unavailable.cache_clear()
    if known:
        reap_lost_workers()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE SCHEMA managed; CREATE FUNCTION managed.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS $$"
            " BEGIN RAISE 'wal_level must be set to logical' USING ERRCODE = '55000'; END $$;"
            " SET LOCAL search_path = managed, pg_catalog, public"
        )
    make_worker()
    make_execution()
    for _ in range(3):
        assert reap_lost_workers() == ReapResult()
    assert place_ready_executions().placed == 1
    assert [record.levelname for record in caplog.records if "timeline" in record.getMessage()] == ["WARNING"]
    assert "Traceback" not in caplog.text


def test_first_read_of_the_timeline_pauses_nothing() -> None:
    make_worker()
    make_execution()
    reap_lost_workers()
    assert place_ready_executions().placed == 1
