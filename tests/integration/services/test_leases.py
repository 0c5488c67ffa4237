"""Registering, renewing, draining and leaving: until when a worker's word counts, and what it must stop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.conf import settings

from jobs import conf
from jobs.errors import StaleAttempt, WorkerLeaseLost, WorkerNameTaken
from jobs.models import Attempt, Dependency, Execution, ExecutionEvent, Worker
from jobs.protocol import Order, Registration, Report, Usage
from jobs.services import attempts, leases, transitions
from jobs.states import Reason
from tests.factories import claim_on, make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db


def the_worker() -> Worker:
    return Worker.objects.get()


def end_lease() -> None:
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))


def test_registering_stores_the_offer_and_starts_a_lease() -> None:
    registration = make_worker(name="alpha", slots=3, capabilities=["bash"], details={"cgroups": "v2"})
    worker = the_worker()
    assert (worker.id, worker.incarnation, registration.incarnation) == (registration.worker_id, 1, 1)
    assert (worker.name, worker.status, worker.slots, worker.capabilities) == ("alpha", "online", 3, ["bash"])
    assert worker.details == {"cgroups": "v2"}
    left = (worker.lease_until - datetime.now(UTC)).total_seconds()
    assert settings.PUNCTUAL_LEASE_SECONDS - 5 < left <= settings.PUNCTUAL_LEASE_SECONDS


def test_registering_again_is_the_same_worker_in_a_new_life() -> None:
    first, second = make_worker(name="alpha", slots=1), make_worker(name="alpha", slots=9)
    assert second == Registration(first.worker_id, first.incarnation + 1)
    assert the_worker().slots == 9


def test_registering_again_takes_away_what_the_former_life_held() -> None:
    first = make_worker(name="alpha")
    queued, running = make_execution(), make_execution()
    place_on(first, queued)
    hold = run_on(first, running)
    make_worker(name="alpha")
    for execution in (queued, running):
        execution.refresh_from_db()
        assert (execution.state, execution.worker_id) == ("ready", None)
    assert (queued.times_lost, running.times_lost) == (0, 1)
    assert Attempt.objects.get().reason == "lost"
    with pytest.raises(StaleAttempt):
        attempts.finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
    with pytest.raises(WorkerLeaseLost):
        leases.renew_lease(first, [])


def test_another_workers_runs_are_left_alone() -> None:
    execution = make_execution()
    run_on(make_worker(), execution)
    make_worker(name="other")
    make_worker(name="other")
    execution.refresh_from_db()
    assert execution.state == "running"


def test_renewing_prolongs_the_lease() -> None:
    worker = make_worker()
    Worker.objects.update(lease_until=datetime.now(UTC) + timedelta(seconds=2))
    before = the_worker().lease_until
    assert leases.renew_lease(worker, []) == []
    assert the_worker().lease_until - before > timedelta(seconds=settings.PUNCTUAL_LEASE_SECONDS - 5)


def test_an_ended_lease_is_never_revived() -> None:
    worker = make_worker()
    end_lease()
    before = the_worker().lease_until
    with pytest.raises(WorkerLeaseLost):
        leases.renew_lease(worker, [])
    assert the_worker().lease_until == before


@pytest.mark.parametrize("status", ["lost", "offline"])
def test_a_worker_that_is_gone_renews_nothing(status: str) -> None:
    worker = make_worker()
    Worker.objects.update(status=status)
    with pytest.raises(WorkerLeaseLost):
        leases.renew_lease(worker, [])


def test_a_draining_worker_renews() -> None:
    worker = make_worker()
    leases.drain_worker(worker)
    assert leases.renew_lease(worker, []) == []
    assert the_worker().status == "draining"


def usage(taken: int) -> Usage:
    return Usage(runs=2, taken=taken, load=0.5, memory_available_mb=1000)


def test_what_it_uses_is_kept_with_its_time_until_it_says_otherwise() -> None:
    worker = make_worker(name="alpha")
    assert the_worker().usage is None
    leases.renew_lease(worker, [], usage(7))
    told = the_worker().usage or {}
    at = datetime.fromisoformat(told.pop("at"))
    assert abs((at - datetime.now(UTC)).total_seconds()) < 30
    assert told == {"runs": 2, "taken": 7, "load": 0.5, "memory_available_mb": 1000}
    leases.renew_lease(worker, [])
    assert (the_worker().usage or {})["taken"] == 7
    make_worker(name="alpha")
    assert the_worker().usage is None, "a new life counts anew"


def test_a_suspect_keeps_its_lease_and_is_trusted_once_it_has_taken_a_message() -> None:
    worker = make_worker()
    leases.renew_lease(worker, [], usage(7))
    Worker.objects.update(status="suspect")
    for told in (None, usage(7), usage(7)):
        assert leases.renew_lease(worker, [], told) == []
        assert the_worker().status == "suspect"
    leases.renew_lease(worker, [], usage(8))
    assert the_worker().status == "online"


def test_a_suspect_that_never_told_anything_is_trusted_once_it_took_something() -> None:
    worker = make_worker()
    Worker.objects.update(status="suspect")
    leases.renew_lease(worker, [], usage(0))
    assert the_worker().status == "suspect"
    leases.renew_lease(worker, [], usage(1))
    assert the_worker().status == "online"


def test_a_suspect_registers_drains_and_leaves_like_any_other() -> None:
    worker = make_worker(name="alpha")
    Worker.objects.update(status="suspect")
    with pytest.raises(WorkerNameTaken):
        make_worker(name="alpha", instance=uuid4())
    leases.drain_worker(worker)
    leases.renew_lease(worker, [], usage(1))
    assert the_worker().status == "draining"
    Worker.objects.update(status="suspect")
    leases.dismiss_worker(worker)
    assert the_worker().status == "offline"
    Worker.objects.update(status="suspect")
    make_worker(name="alpha")
    assert the_worker().status == "online"


def test_what_is_its_own_and_wanted_brings_no_order() -> None:
    worker = make_worker()
    queued, claimed, running = (f(worker, make_execution()) for f in (place_on, claim_on, run_on))
    assert leases.renew_lease(worker, [(h.execution_id, h.attempt) for h in (queued, claimed, running)]) == []


def test_a_cancel_is_ordered() -> None:
    worker = make_worker()
    hold = run_on(worker, make_execution())
    transitions.cancel([hold.execution_id], by="test")
    expected = [Order(hold.execution_id, hold.attempt, cancelled=True)]
    assert leases.renew_lease(worker, [(hold.execution_id, 1)]) == expected
    assert leases.renew_lease(worker, [(hold.execution_id, 1)]) == expected, "until it is obeyed"


def test_what_is_not_its_own_is_ordered_to_stop() -> None:
    worker, other = make_worker(), make_worker()
    elsewhere = run_on(other, make_execution())
    ended = run_on(worker, make_execution())
    attempts.finish_attempt(ended, Report(Reason.EXIT, exit_code=0))
    again = make_execution()
    run_on(worker, again)
    transitions.lose_held({worker.worker_id: None})
    run_on(worker, again)
    unknown = uuid4()
    pairs = [(elsewhere.execution_id, 1), (ended.execution_id, 1), (again.id, 1), (unknown, 1)]
    orders = leases.renew_lease(worker, [*pairs, (again.id, 2)])
    assert {(o.execution_id, o.attempt) for o in orders} == set(pairs)
    assert not any(o.cancelled for o in orders)


def claimed_long_ago(execution: Execution) -> None:
    Execution.objects.filter(id=execution.id).update(
        claimed_at=datetime.now(UTC) - timedelta(seconds=conf.UNLISTED_SECONDS + 1)
    )


@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_a_claim_whose_answer_got_lost_does_not_hang(prepare: type) -> None:
    worker, execution = make_worker(), make_execution()
    prepare(worker, execution)
    leases.renew_lease(worker, [])
    execution.refresh_from_db()
    assert execution.state in ("claimed", "running"), "the answer may still be on its way"
    claimed_long_ago(execution)
    leases.renew_lease(worker, [])
    execution.refresh_from_db()
    assert (execution.state, execution.times_lost) == ("ready", 1)


def test_what_the_worker_lists_or_has_not_taken_yet_is_not_lost() -> None:
    worker, listed, queued = make_worker(), make_execution(), make_execution()
    run_on(worker, listed)
    place_on(worker, queued)
    claimed_long_ago(listed)
    claimed_long_ago(queued)
    assert leases.renew_lease(worker, [(listed.id, 1)]) == []
    assert set(Execution.objects.values_list("state", flat=True)) == {"running", "queued"}


def test_a_lost_at_most_once_end_is_passed_on_to_its_dependents() -> None:
    worker = make_worker()
    upstream = make_job(delivery="at_most_once")
    follower = make_job(owner=upstream.owner)
    Dependency.objects.create(job=follower, upstream=upstream, condition="failure")
    execution = make_execution(job=upstream)
    run_on(worker, execution)
    claimed_long_ago(execution)
    leases.renew_lease(worker, [])
    assert Execution.objects.get(job=follower).state == "ready"


def test_draining_gives_back_what_waits_and_keeps_what_was_taken() -> None:
    worker = make_worker()
    queued, running = make_execution(), make_execution()
    hold = place_on(worker, queued)
    run_on(worker, running)
    leases.drain_worker(worker)
    queued.refresh_from_db()
    running.refresh_from_db()
    assert (queued.state, queued.worker_id, queued.tries_used, queued.times_lost) == ("ready", None, 0, 0)
    assert running.state == "running"
    event = ExecutionEvent.objects.get()
    assert (event.execution_id, event.name) == (queued.id, "execution.released")
    with pytest.raises(StaleAttempt):
        attempts.claim_attempt(hold)


def test_what_waits_on_others_stays_when_one_drains() -> None:
    staying, leaving = make_worker(), make_worker()
    queued = make_execution()
    place_on(staying, queued)
    leases.drain_worker(leaving)
    queued.refresh_from_db()
    assert (queued.state, queued.worker_id) == ("queued", staying.worker_id)


@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_goodbye_releases_everything(prepare: Callable[[Registration, Execution], object]) -> None:
    worker = make_worker()
    execution = make_execution()
    prepare(worker, execution)
    Execution.objects.update(times_lost=conf.MAX_TIMES_LOST - 1)
    leases.dismiss_worker(worker)
    execution.refresh_from_db()
    assert (execution.state, the_worker().status) == ("ready", "offline")
    assert (execution.times_lost, execution.tries_used) == (conf.MAX_TIMES_LOST - 1, 0), "nobody is to blame"
    assert Attempt.objects.get().reason == "released"
    assert ExecutionEvent.objects.get().name == "execution.released"


def test_what_may_be_claimed_once_only_ends_with_the_goodbye() -> None:
    worker = make_worker()
    execution = make_execution(job=make_job(delivery="at_most_once"))
    run_on(worker, execution)
    leases.dismiss_worker(worker)
    execution.refresh_from_db()
    assert (execution.state, execution.reason) == ("failed", "released")


def test_a_former_life_neither_drains_nor_dismisses_the_present_one() -> None:
    old = make_worker(name="alpha")
    new = make_worker(name="alpha")
    hold = run_on(new, make_execution())
    leases.drain_worker(old)
    leases.dismiss_worker(old)
    assert the_worker().status == "online"
    assert Execution.objects.get(id=hold.execution_id).state == "running"


def test_a_lost_worker_does_not_come_back_by_draining() -> None:
    worker = make_worker()
    Worker.objects.update(status="lost")
    leases.drain_worker(worker)
    assert the_worker().status == "lost"


def test_another_worker_of_a_living_ones_name_is_refused() -> None:
    first = make_worker(name="twin", instance=UUID(int=1))
    with pytest.raises(WorkerNameTaken, match="PUNCTUAL_WORKER_NAME"):
        make_worker(name="twin", instance=UUID(int=2))
    assert leases.renew_lease(first, []) == [], "the first one noticed nothing"
    assert make_worker(name="twin", instance=UUID(int=1)).incarnation == 2, "its own restart is welcome"


@pytest.mark.parametrize("gone", [{"status": "offline"}, {"status": "lost"}, {"lease_until": "1999-01-01T00:00Z"}])
def test_the_name_of_a_worker_that_is_gone_is_free(gone: dict[str, str]) -> None:
    first = make_worker(name="twin", instance=UUID(int=1))
    Worker.objects.filter(id=first.worker_id).update(**gone)
    second = make_worker(name="twin", instance=UUID(int=2))
    assert (second.worker_id, second.incarnation) == (first.worker_id, 2)
