"""Registration, renewal, draining and deregistration of workers, and their stop orders."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.conf import settings

from jobs.domain import limits
from jobs.domain.errors import StaleAttempt, WorkerLeaseLost, WorkerNameTaken
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import Registration, RunReport, StopOrder, WorkerUsage
from jobs.execution import attempts, transitions
from jobs.fleet import leases
from jobs.models import Attempt, Dependency, Execution, ExecutionEvent, Worker
from tests.support.factories import claim_on, make_execution, make_job, make_worker, place_on, run_on

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


def test_registering_again_starts_a_new_incarnation() -> None:
    first, second = make_worker(name="alpha", slots=1), make_worker(name="alpha", slots=9)
    assert second == Registration(first.worker_id, first.incarnation + 1)
    assert the_worker().slots == 9


def test_registering_again_reclaims_what_the_earlier_incarnation_held() -> None:
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
        attempts.finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
    with pytest.raises(WorkerLeaseLost):
        leases.renew_lease(first, [])


def test_registering_leaves_other_workers_alone() -> None:
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


def test_worker_is_granted_the_longer_lease_of_its_guardian() -> None:
    worker = make_worker()
    longer = settings.PUNCTUAL_LEASE_SECONDS + 60.0
    leases.renew_lease(worker, [], lease_seconds=longer)
    left = the_worker().lease_until - datetime.now(UTC)
    assert longer - 5 < left.total_seconds() <= longer


def test_ended_lease_is_never_revived() -> None:
    worker = make_worker()
    end_lease()
    before = the_worker().lease_until
    with pytest.raises(WorkerLeaseLost):
        leases.renew_lease(worker, [])
    assert the_worker().lease_until == before


@pytest.mark.parametrize("status", ["lost", "offline"])
def test_worker_that_is_gone_cannot_renew(status: str) -> None:
    worker = make_worker()
    Worker.objects.update(status=status)
    with pytest.raises(WorkerLeaseLost):
        leases.renew_lease(worker, [])


def test_draining_worker_renews() -> None:
    worker = make_worker()
    leases.drain_worker(worker)
    assert leases.renew_lease(worker, []) == []
    assert the_worker().status == "draining"


def usage(taken: int) -> WorkerUsage:
    return WorkerUsage(runs=2, taken=taken, load=0.5, memory_available_mb=1000)


def test_usage_is_stored_with_its_time_until_the_next_report() -> None:
    worker = make_worker(name="alpha")
    assert the_worker().usage is None
    leases.renew_lease(worker, [], usage(7))
    reported = the_worker().usage or {}
    at = datetime.fromisoformat(reported.pop("at"))
    assert abs((at - datetime.now(UTC)).total_seconds()) < 30
    assert reported == {"runs": 2, "taken": 7, "load": 0.5, "memory_available_mb": 1000}
    leases.renew_lease(worker, [])
    assert (the_worker().usage or {})["taken"] == 7
    make_worker(name="alpha")
    assert the_worker().usage is None, "a new incarnation starts without usage"


def test_suspect_keeps_its_lease_and_recovers_after_a_claim() -> None:
    worker = make_worker()
    leases.renew_lease(worker, [], usage(7))
    Worker.objects.update(status="suspect")
    for reported in (None, usage(7), usage(7)):
        assert leases.renew_lease(worker, [], reported) == []
        assert the_worker().status == "suspect"
    leases.renew_lease(worker, [], usage(8))
    assert the_worker().status == "online"


def test_suspect_without_usage_reports_recovers_after_a_claim() -> None:
    worker = make_worker()
    Worker.objects.update(status="suspect")
    leases.renew_lease(worker, [], usage(0))
    assert the_worker().status == "suspect"
    leases.renew_lease(worker, [], usage(1))
    assert the_worker().status == "online"


def test_suspect_can_register_drain_and_leave() -> None:
    worker = make_worker(name="alpha")
    Worker.objects.update(status="suspect")
    with pytest.raises(WorkerNameTaken):
        make_worker(name="alpha", instance=uuid4())
    leases.drain_worker(worker)
    leases.renew_lease(worker, [], usage(1))
    assert the_worker().status == "draining"
    Worker.objects.update(status="suspect")
    leases.deregister_worker(worker)
    assert the_worker().status == "offline"
    Worker.objects.update(status="suspect")
    make_worker(name="alpha")
    assert the_worker().status == "online"


def test_no_stop_order_for_own_runs() -> None:
    worker = make_worker()
    queued, claimed, running = (f(worker, make_execution()) for f in (place_on, claim_on, run_on))
    assert leases.renew_lease(worker, [(h.execution_id, h.attempt) for h in (queued, claimed, running)]) == []


def test_cancelled_run_gets_a_stop_order() -> None:
    worker = make_worker()
    hold = run_on(worker, make_execution())
    transitions.cancel([hold.execution_id], by="test")
    expected = [StopOrder(hold.execution_id, hold.attempt, cancelled=True)]
    assert leases.renew_lease(worker, [(hold.execution_id, 1)]) == expected
    assert leases.renew_lease(worker, [(hold.execution_id, 1)]) == expected, "until the worker has stopped it"


def test_run_of_another_worker_gets_a_stop_order() -> None:
    worker, other = make_worker(), make_worker()
    elsewhere = run_on(other, make_execution())
    ended = run_on(worker, make_execution())
    attempts.finish_attempt(ended, RunReport(Reason.EXIT, exit_code=0))
    again = make_execution()
    run_on(worker, again)
    transitions.lose_executions({worker.worker_id: None})
    run_on(worker, again)
    unknown = uuid4()
    pairs = [(elsewhere.execution_id, 1), (ended.execution_id, 1), (again.id, 1), (unknown, 1)]
    orders = leases.renew_lease(worker, [*pairs, (again.id, 2)])
    assert {(o.execution_id, o.attempt) for o in orders} == set(pairs)
    assert not any(o.cancelled for o in orders)


def test_idle_renewal_is_one_statement(
    django_assert_num_queries: Callable[[int], AbstractContextManager[None]],
) -> None:
    worker, busy = make_worker(), make_worker()
    hold = run_on(busy, make_execution())
    with django_assert_num_queries(1):
        leases.renew_lease(worker, [], usage(0))
    with django_assert_num_queries(2):
        leases.renew_lease(busy, [(hold.execution_id, 1)], usage(1))


def test_renewal_loses_what_an_earlier_incarnation_held() -> None:
    worker, execution = make_worker(), make_execution()
    run_on(worker, execution)
    # The registration could not reclaim it, because its row was locked.
    Worker.objects.update(incarnation=2)
    leases.renew_lease(Registration(worker.worker_id, 2), [])
    execution.refresh_from_db()
    assert (execution.state, execution.times_lost) == ("ready", 1)


def claimed_long_ago(execution: Execution) -> None:
    Execution.objects.filter(id=execution.id).update(
        claimed_at=datetime.now(UTC) - timedelta(seconds=limits.UNREPORTED_GRACE_SECONDS + 1)
    )


@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_claim_with_a_lost_response_is_recovered(prepare: type) -> None:
    worker, execution = make_worker(), make_execution()
    prepare(worker, execution)
    leases.renew_lease(worker, [])
    execution.refresh_from_db()
    assert execution.state in ("claimed", "running"), "the response may still be on its way"
    claimed_long_ago(execution)
    leases.renew_lease(worker, [])
    execution.refresh_from_db()
    assert (execution.state, execution.times_lost) == ("ready", 1)


def test_listed_or_unclaimed_executions_are_not_lost() -> None:
    worker, listed, queued = make_worker(), make_execution(), make_execution()
    run_on(worker, listed)
    place_on(worker, queued)
    claimed_long_ago(listed)
    claimed_long_ago(queued)
    assert leases.renew_lease(worker, [(listed.id, 1)]) == []
    assert set(Execution.objects.values_list("state", flat=True)) == {"running", "queued"}


def test_losing_an_at_most_once_run_resolves_its_dependents() -> None:
    worker = make_worker()
    upstream = make_job(delivery="at_most_once")
    follower = make_job(owner=upstream.owner)
    Dependency.objects.create(job=follower, upstream=upstream, condition="failure")
    execution = make_execution(job=upstream)
    run_on(worker, execution)
    claimed_long_ago(execution)
    leases.renew_lease(worker, [])
    assert Execution.objects.get(job=follower).state == "ready"


def test_draining_releases_queued_and_keeps_claimed_executions() -> None:
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


def test_draining_leaves_other_workers_alone() -> None:
    staying, leaving = make_worker(), make_worker()
    queued = make_execution()
    place_on(staying, queued)
    leases.drain_worker(leaving)
    queued.refresh_from_db()
    assert (queued.state, queued.worker_id) == ("queued", staying.worker_id)


@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_deregistering_releases_everything(prepare: Callable[[Registration, Execution], object]) -> None:
    worker = make_worker()
    execution = make_execution()
    prepare(worker, execution)
    Execution.objects.update(times_lost=limits.MAX_LOST_ATTEMPTS - 1)
    leases.deregister_worker(worker)
    execution.refresh_from_db()
    assert (execution.state, the_worker().status) == ("ready", "offline")
    assert (execution.times_lost, execution.tries_used) == (limits.MAX_LOST_ATTEMPTS - 1, 0), "no try is used up"
    assert Attempt.objects.get().reason == "released"
    assert ExecutionEvent.objects.get().name == "execution.released"


def test_deregistering_fails_at_most_once_runs() -> None:
    worker = make_worker()
    execution = make_execution(job=make_job(delivery="at_most_once"))
    run_on(worker, execution)
    leases.deregister_worker(worker)
    execution.refresh_from_db()
    assert (execution.state, execution.reason) == ("failed", "released")


def test_earlier_incarnation_cannot_drain_or_deregister_the_current_one() -> None:
    old = make_worker(name="alpha")
    new = make_worker(name="alpha")
    hold = run_on(new, make_execution())
    leases.drain_worker(old)
    leases.deregister_worker(old)
    assert the_worker().status == "online"
    assert Execution.objects.get(id=hold.execution_id).state == "running"


def test_lost_worker_does_not_come_back_by_draining() -> None:
    worker = make_worker()
    Worker.objects.update(status="lost")
    leases.drain_worker(worker)
    assert the_worker().status == "lost"


def test_second_worker_with_the_name_of_a_live_one_is_refused() -> None:
    first = make_worker(name="twin", instance=UUID(int=1))
    with pytest.raises(WorkerNameTaken, match="PUNCTUAL_WORKER_NAME"):
        make_worker(name="twin", instance=UUID(int=2))
    assert leases.renew_lease(first, []) == [], "the first one is unaffected"
    assert make_worker(name="twin", instance=UUID(int=1)).incarnation == 2, "its own restart is admitted"


@pytest.mark.parametrize("gone", [{"status": "offline"}, {"status": "lost"}, {"lease_until": "1999-01-01T00:00Z"}])
def test_name_of_a_worker_that_is_gone_is_free(gone: dict[str, str]) -> None:
    first = make_worker(name="twin", instance=UUID(int=1))
    Worker.objects.filter(id=first.worker_id).update(**gone)
    second = make_worker(name="twin", instance=UUID(int=2))
    assert (second.worker_id, second.incarnation) == (first.worker_id, 2)
