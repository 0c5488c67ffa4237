"""Why an execution waits: every gate before it, told by what the beats themselves decide with.

Invariant: whether there is room, and where, is said by the `plan` that places, over the rows that it would read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from jobs import conf
from jobs.models import LIVING, Condition, Dependency, Execution, JobState, Worker, WorkerStatus
from jobs.planning import Gate, Plan, plan
from jobs.services import schedules
from jobs.services.database import bounded
from jobs.services.demands import read_demand, read_ready, read_workers
from jobs.services.network_use import WITHDRAWN, may_use_network
from jobs.services.owner_limits import execution_quota, read_limited
from jobs.states import ACTIVE, TERMINAL, State, values

MAX_HOLDERS_SHOWN = 20
MEETS = {
    Condition.SUCCESS: {State.SUCCEEDED},
    Condition.FAILURE: {State.FAILED, State.TIMED_OUT},
    Condition.COMPLETION: TERMINAL,
}


@dataclass(frozen=True, slots=True)
class Explanation:
    execution_id: UUID
    state: str
    words: str
    gates: Sequence[Gate]


def explain_execution(execution_id: UUID) -> Explanation:
    """What holds it as of now. What is placed or has ended waits for nothing and has no gates."""
    with transaction.atomic(), bounded(statement_seconds=10):
        rows = Execution.objects.select_related("job", "job__owner", "queue", "version", "worker")
        execution = rows.get(id=execution_id)
        if execution.state in ACTIVE or execution.state in TERMINAL:
            return Explanation(execution_id, execution.state, _past_waiting(execution), [])
        own = [
            *_dependency_gates(execution),
            _time_gate(execution),
            *_pause_gates(execution),
            *_network_gates(execution),
        ]
        made = _plan_around(execution)
        placing = [_with_holders(gate, execution) for gate in made.gates.get(execution_id, [])]
        placing += [*_suspect_gates(execution), *_refusal_gates(execution)]
        return Explanation(execution_id, execution.state, _words(execution, own, made), [*own, *placing])


def _plan_around(execution: Execution) -> Plan:
    """The next pass. What placement would leave out is put last: whatever goes before it has gone by then."""
    pool = execution.queue.pool
    limited = read_limited()
    ready = read_ready(pool, conf.PLACE_BATCH_EXECUTIONS, limited)
    if all(demand.execution_id != execution.id for demand in ready):
        ready.append(read_demand(execution.id, limited))
    return plan(ready, read_workers(pool, full_ones=True), asked={execution.id})


def _words(execution: Execution, own: Sequence[Gate], made: Plan) -> str:
    closed = [gate.words for gate in own if not gate.open]
    if closed:
        return f"It waits. {' '.join(closed)}"
    if execution.id in made.held:
        return f"It waits: {made.held[execution.id]}."
    (worker_id,) = (planned.worker_id for planned in made.assignments if planned.execution_id == execution.id)
    name = Worker.objects.values_list("name", flat=True).get(id=worker_id)
    return f"Nothing holds it: the next pass places it on {name}."


def _past_waiting(execution: Execution) -> str:
    if execution.state in TERMINAL:
        return f"It has ended: {execution.state}."
    return f"It is {execution.state} on {execution.worker}."


def _dependency_gates(execution: Execution) -> Iterator[Gate]:
    for edge in Dependency.objects.filter(job_id=execution.job_id).select_related("upstream").order_by("id"):
        upstream = _upstream(execution, edge)
        state = None if upstream is None else upstream.state
        # What is past `blocked` was judged, and stays judged whatever happens to its upstreams.
        met = execution.state != State.BLOCKED or state in MEETS[Condition(edge.condition)]
        there_is = f"is {state}" if state is not None else "has no execution to wait for yet"
        holders = [] if upstream is None else [upstream.id]
        words = f"It runs after the {edge.condition} of {edge.upstream.name}, which {there_is}."
        yield Gate("dependency", met, words, state, edge.condition, holders)


def _upstream(execution: Execution, edge: Dependency) -> Execution | None:
    """In the same run; of an execution with an instant of its own, the latest one up to that instant."""
    rows = Execution.objects.filter(job_id=edge.upstream_id)
    if execution.schedule_id is None:
        return rows.filter(run_id=execution.run_id).first()
    return rows.filter(scheduled_for__lte=execution.scheduled_for).order_by("-scheduled_for", "-id").first()


def _time_gate(execution: Execution) -> Gate:
    now = schedules.database_now()
    if execution.retry_at is None:
        return Gate("time", True, "Its time has come.", now, execution.scheduled_for)
    words = f"It is tried again at {execution.retry_at.isoformat(timespec='seconds')}."
    return Gate("time", False, words, now, execution.retry_at)


def _pause_gates(execution: Execution) -> Iterator[Gate]:
    job, queue = execution.job, execution.queue
    paused = job.state == JobState.PAUSED
    words = "Its job is not paused."
    if paused:
        words = "Its job is paused: no schedule of it fires, and what has fired runs on."
    # A dependent of a paused job is skipped once it is judged; until then it waits for that.
    yield Gate("job_pause", not paused or execution.state != State.BLOCKED, words, job.state, None, [job.id])
    words = f"Its queue {queue.name} is {'paused' if queue.paused else 'not paused'}."
    yield Gate("queue_pause", not queue.paused, words, queue.paused, None, [queue.id])


def _network_gates(execution: Execution) -> Iterator[Gate]:
    if execution.version.network:
        allowed = may_use_network(execution.job.owner)
        words = "Its owner may give it a network, which not every worker has."
        if not allowed:
            words = WITHDRAWN
        yield Gate("network_permission", allowed, words, allowed, True)


def _suspect_gates(execution: Execution) -> Iterator[Gate]:
    """Workers that would be asked if they took what they are given; a pinned execution asks only for its own."""
    suspects = Worker.objects.filter(pool=execution.queue.pool, status=WorkerStatus.SUSPECT, lease_until__gt=Now())
    if execution.pinned_worker_id is not None:
        suspects = suspects.filter(id=execution.pinned_worker_id)
    for worker in suspects.order_by("name")[:MAX_HOLDERS_SHOWN]:
        words = f"{worker.name} is suspect: it took nothing of what was placed on it, and gets nothing until it does."
        yield Gate("suspect", False, words, worker.status, None, [worker.id])


def _refusal_gates(execution: Execution) -> Iterator[Gate]:
    """Workers that are here and take nothing, by their own word."""
    refusing = Worker.objects.filter(pool=execution.queue.pool, status__in=LIVING, lease_until__gt=Now())
    if execution.pinned_worker_id is not None:
        refusing = refusing.filter(id=execution.pinned_worker_id)
    for worker in refusing.exclude(refusal="").order_by("name")[:MAX_HOLDERS_SHOWN]:
        yield Gate("refusal", False, f"{worker.name} refuses work. {worker.refusal}", None, None, [worker.id])


def _standing_of(worker_id: UUID) -> str:
    """Of the only worker that it may run on, which takes nothing."""
    worker = Worker.objects.filter(id=worker_id).first()
    if worker is None:
        return "The worker that it is to run on is gone; cancel it, or run the job anew on another."
    match worker.status:
        case WorkerStatus.DRAINING:
            return f"{worker.name}, which it is to run on, is draining: it takes nothing until it is started again."
        case WorkerStatus.SUSPECT:
            return f"{worker.name}, which it is to run on, is suspect."
        case _:
            return f"{worker.name}, which it is to run on, is not online; it is waited for."


def _with_holders(gate: Gate, execution: Execution) -> Gate:
    """The plan knows how much room is left; who has the rest is told here."""
    rows = Execution.objects.filter(state__in=values(ACTIVE))
    match gate.name:
        case "worker" if not gate.open and execution.pinned_worker_id is not None:
            return replace(gate, words=_standing_of(execution.pinned_worker_id))
        case "queue_limit":
            what, most, rows = "queue", execution.queue.max_concurrency, rows.filter(queue_id=execution.queue_id)
        case "job_limit":
            what, most, rows = "job", execution.version.max_concurrency, rows.filter(job_id=execution.job_id)
        case "owner_limit":
            owner_id = execution.job.owner_id
            what, most, rows = "owner", execution_quota(owner_id) or None, rows.filter(job__owner_id=owner_id)
        case _:
            return gate
    if most is None:
        return gate
    active = rows.count()
    # Of a queue that many share, only the owner's own.
    shown = rows.filter(job__owner_id=execution.job.owner_id).order_by("id")[:MAX_HOLDERS_SHOWN]
    words = f"{active} of at most {most} of its {what} are active."
    if not gate.open and active < most:
        words = f"{active} of at most {most} of its {what} are active, and others go before it."
    return replace(gate, words=words, value=active, limit=most, holders=[held.id for held in shown])
