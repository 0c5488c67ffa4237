"""Work is taken back from workers that are gone, once, and counted as lost only if somebody had taken it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings

from jobs import conf, sql
from jobs.errors import StaleAttempt
from jobs.models import Attempt, Dependency, Execution, ExecutionEvent, ReaperStamp, Worker
from jobs.protocol import Chunk, Report
from jobs.services import transitions
from jobs.services.attempts import finish_attempt
from jobs.services.logs import append_chunks
from jobs.services.placement import place_ready_executions
from jobs.services.reaping import ReapResult, reap_lost_workers
from jobs.states import Reason
from tests.factories import claim_on, hold_of, make_execution, make_job, make_worker, place_on, run_on, stamp_reaping

pytestmark = pytest.mark.django_db

LEASE = 30.0
DONE = Report(Reason.EXIT, exit_code=0)


@pytest.fixture(autouse=True)
def _beats_were_there(db: None) -> None:
    stamp_reaping()


def end_leases() -> None:
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))


def placed_long_ago() -> None:
    Execution.objects.update(placed_at=datetime.now(UTC) - timedelta(seconds=conf.UNCLAIMED_SECONDS + 1))


def test_a_living_worker_is_left_alone() -> None:
    run_on(make_worker(), make_execution())
    assert reap_lost_workers() == ReapResult()


def test_a_placement_that_raced_the_beginning_of_a_drain_is_taken_back() -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    Worker.objects.update(status="draining")
    assert reap_lost_workers() == ReapResult(released=1)
    execution.refresh_from_db()
    assert (execution.state, execution.worker_id) == ("ready", None)
    assert reap_lost_workers() == ReapResult()


@pytest.mark.parametrize("status", ["online", "suspect", "draining"])
@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_an_ended_lease_moves_the_work_on_to_attempt_two(status: str, prepare: type) -> None:
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


def test_what_was_only_queued_goes_back_without_counting() -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    end_leases()
    reap_lost_workers()
    execution.refresh_from_db()
    assert (execution.state, execution.times_lost) == ("ready", 0)
    assert not Attempt.objects.exists()


def test_at_most_once_ends_as_lost_unless_nobody_had_taken_it() -> None:
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


def test_what_is_lost_too_often_is_taken_for_the_cause() -> None:
    execution = make_execution()
    for time in range(1, conf.MAX_TIMES_LOST + 1):
        run_on(make_worker(name="victim"), execution)
        end_leases()
        reap_lost_workers()
        execution.refresh_from_db()
        assert execution.state == ("failed" if time == conf.MAX_TIMES_LOST else "ready")
    assert (execution.reason, execution.attempt) == ("lost", conf.MAX_TIMES_LOST)


def test_a_cancel_that_was_asked_for_is_kept_by_the_loss() -> None:
    execution = make_execution()
    run_on(make_worker(), execution)
    transitions.cancel([execution.id], by="test")
    end_leases()
    reap_lost_workers()
    execution.refresh_from_db()
    assert (execution.state, execution.reason) == ("cancelled", "cancelled")


def test_a_loss_that_ends_an_execution_resolves_its_dependents() -> None:
    upstream = make_job(delivery="at_most_once")
    follower = make_job(owner=upstream.owner)
    Dependency.objects.create(job=follower, upstream=upstream, condition="failure")
    run_on(make_worker(), make_execution(job=upstream))
    end_leases()
    reap_lost_workers()
    assert Execution.objects.get(job=follower).state == "ready"


def test_a_placement_that_raced_a_registration_is_taken_back() -> None:
    worker = make_worker()
    execution, kept = make_execution(), make_execution()
    place_on(worker, execution)
    Worker.objects.update(incarnation=worker.incarnation + 1)
    from jobs.protocol import Registration

    place_on(Registration(worker.worker_id, worker.incarnation + 1), kept)
    assert reap_lost_workers() == ReapResult(executions=1)
    execution.refresh_from_db()
    kept.refresh_from_db()
    assert (execution.state, kept.state) == ("ready", "queued")


@pytest.mark.parametrize("status", ["lost", "offline"])
def test_a_placement_that_raced_a_departure_is_taken_back(status: str) -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    Worker.objects.update(status=status)
    assert reap_lost_workers() == ReapResult(executions=1)
    execution.refresh_from_db()
    assert execution.state == "ready"


def test_a_message_that_nobody_took_is_placed_anew() -> None:
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


def test_who_takes_nothing_is_suspect_and_gets_nothing_more() -> None:
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
def test_who_is_not_meant_to_take_anything_is_not_suspect(status: str) -> None:
    place_on(make_worker(), make_execution())
    Worker.objects.update(status=status)
    placed_long_ago()
    assert reap_lost_workers().suspects == 0
    assert Worker.objects.get().status == status


def test_nobody_is_suspect_for_what_was_placed_on_a_former_life_or_never_arrived() -> None:
    place_on(make_worker(name="victim"), make_execution())
    placed_long_ago()
    assert reap_lost_workers(blame=False) == ReapResult(unclaimed=1)
    worker = make_worker(name="victim")
    place_on(worker, make_execution())
    placed_long_ago()
    Worker.objects.update(incarnation=worker.incarnation + 1)
    assert reap_lost_workers().suspects == 0


@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_what_somebody_took_is_not_unclaimed_however_old(prepare: type) -> None:
    prepare(make_worker(), make_execution())
    placed_long_ago()
    assert reap_lost_workers() == ReapResult()


def lose_one() -> Execution:
    execution = make_execution()
    run_on(make_worker(), execution)
    end_leases()
    return execution


def test_after_a_gap_nobody_is_lost_for_one_lease() -> None:
    lose_one()
    stamp_reaping(ago=LEASE)
    assert reap_lost_workers() == ReapResult(), "the database or all beats were away: nobody could renew"
    assert reap_lost_workers() == ReapResult(), "nor in the next pass"
    stamp_reaping(unbroken_for=LEASE - 2)
    assert reap_lost_workers() == ReapResult(), "nor while the lease lasts"
    stamp_reaping(unbroken_for=LEASE)
    assert reap_lost_workers() == ReapResult(workers=1, executions=1)


def test_the_very_first_pass_is_after_a_gap() -> None:
    ReaperStamp.objects.all().delete()
    lose_one()
    assert reap_lost_workers() == ReapResult()
    assert ReaperStamp.objects.count() == 1


def test_passes_that_follow_each_other_are_unbroken_whoever_makes_them() -> None:
    stamp_reaping(unbroken_for=LEASE)
    before = ReaperStamp.objects.get()
    for _ in range(3):
        reap_lost_workers()
    after = ReaperStamp.objects.get()
    assert after.unbroken_since == before.unbroken_since
    assert after.stamped_at > before.stamped_at


def test_a_slow_pass_is_no_gap() -> None:
    lose_one()
    stamp_reaping(ago=conf.REAP_SECONDS * (conf.REAP_GAP_PASSES - 1))
    assert reap_lost_workers() == ReapResult(workers=1, executions=1)


def test_a_short_lease_does_not_make_every_pass_a_gap(settings: Settings) -> None:
    settings.PUNCTUAL_LEASE_SECONDS = 3.0
    lose_one()
    stamp_reaping(ago=conf.REAP_SECONDS * (conf.REAP_GAP_PASSES - 1))
    assert reap_lost_workers().workers == 1


def test_work_without_a_living_owner_is_taken_back_also_after_a_gap() -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    Worker.objects.update(status="offline")
    stamp_reaping(ago=LEASE)
    assert reap_lost_workers() == ReapResult(executions=1), "that was not decided by a lease"


def test_a_stamp_that_froze_with_the_database_reaps_nobody() -> None:
    """The clock was read, then all stood still, then the statements went on."""
    lose_one()
    stamp_reaping(ago=LEASE, unbroken_for=LEASE)
    parameters = {"gap_seconds": LEASE / 3, "lease_seconds": LEASE}
    assert sql.execute("reap_workers", parameters) == 0
    stamp_reaping(unbroken_for=LEASE)
    assert sql.execute("reap_workers", parameters) == 1
