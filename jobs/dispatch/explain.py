"""Explanations: the gates that an execution waits for, open or closed.

Invariant: capacity is decided by the same planner that places, over the rows that it would read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from jobs.access.network_permission import PERMISSION_WITHDRAWN, may_use_network
from jobs.access.quotas import read_execution_quota, read_limited_owners
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.dispatch.pool_plan import PassLimits, PlacementDecision, PoolPlan
from jobs.domain.choices import Condition
from jobs.domain.packing import Gate
from jobs.domain.states import ACTIVE, HELD, TERMINAL, State
from jobs.models import LIVE_STATUSES, Dependency, Execution, JobState, ReaperStamp, Worker, WorkerStatus
from jobs.models.visibility import shared_with

MAX_HOLDERS = 20
SATISFYING_STATES = {
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
    held: bool = True  # False: the next pass places it


def explain_execution(execution_id: UUID, *, viewer: User | None = None) -> Explanation:
    """Return the gates of a waiting execution; a placed or finished one has none.

    `viewer`: the user, who learns nothing of executions that they may not see. None: the owner of the job.
    """
    with transaction.atomic(), with_timeouts(statement_seconds=10, avoid_bitmap_scans=True):
        rows = Execution.objects.select_related("job__owner", "job__current_version", "queue", "version", "worker")
        execution = rows.get(id=execution_id)
        if execution.state in ACTIVE or execution.state in TERMINAL:
            return Explanation(execution_id, execution.state, _describe_state(execution), [])
        viewer = viewer or execution.job.owner
        own_gates = [
            *_dependency_gates(execution, viewer),
            _time_gate(execution),
            *_pause_gates(execution),
            *_network_gates(execution),
            *_failover_gates(),
        ]
        decision = PoolPlan(execution.queue.pool, PassLimits(), limited=read_limited_owners()).decide_for(execution_id)
        placement_gates = [_add_holders(gate, execution, viewer) for gate in decision.gates]
        placement_gates += [*_suspect_gates(execution), *_refusal_gates(execution)]
        held = decision.worker_id is None or not all(gate.open for gate in own_gates)
        return Explanation(
            execution_id, execution.state, _summarize(own_gates, decision), [*own_gates, *placement_gates], held
        )


def _summarize(own_gates: Sequence[Gate], decision: PlacementDecision) -> str:
    closed = [gate.words for gate in own_gates if not gate.open]
    if closed:
        return f"It waits. {' '.join(closed)}"
    if decision.worker_id is None:
        return f"It waits: {decision.reason}."
    name = Worker.objects.values_list("name", flat=True).get(id=decision.worker_id)
    return f"Nothing holds it: the next pass places it on {name}."


def _describe_state(execution: Execution) -> str:
    if execution.state in TERMINAL:
        return f"It has ended: {execution.state}."
    return f"It is {execution.state} on {execution.worker}."


def _dependency_gates(execution: Execution, viewer: User) -> Iterator[Gate]:
    for edge in Dependency.objects.filter(job_id=execution.job_id).select_related("upstream").order_by("id"):
        upstream = _find_upstream(execution, edge)
        state = None if upstream is None else upstream.state
        # An execution past `blocked` was decided, and stays so whatever happens to its upstreams.
        met = execution.state != State.BLOCKED or state in SATISFYING_STATES[Condition(edge.condition)]
        status = f"is {state}" if state is not None else "has no execution to wait for yet"
        holders = [] if upstream is None else _visible_ids(viewer, Execution.objects.filter(id=upstream.id))
        words = f"It runs after the {edge.condition} of {edge.upstream.name}, which {status}."
        yield Gate("dependency", met, words, state, edge.condition, holders)


def _find_upstream(execution: Execution, edge: Dependency) -> Execution | None:
    """Return the upstream in the same run; for a scheduled execution, the latest up to its instant."""
    rows = Execution.objects.filter(job_id=edge.upstream_id)
    if execution.schedule_id is None:
        root = rows.filter(id=execution.run_id)
        return root.first() or rows.filter(run_id=execution.run_id).exclude(id=F("run_id")).first()
    return rows.filter(scheduled_for__lte=execution.scheduled_for).order_by("-scheduled_for", "-id").first()


def _time_gate(execution: Execution) -> Gate:
    now = database_now()
    if execution.retry_at is None:
        return Gate("time", True, "It is due.", now, execution.scheduled_for)
    words = f"It is retried at {execution.retry_at.isoformat(timespec='seconds')}."
    return Gate("time", False, words, now, execution.retry_at)


def _failover_gates() -> Iterator[Gate]:
    """Yield the gate only while it is closed, which is rare."""
    now = database_now()
    stamp = ReaperStamp.objects.filter(placement_resumes_at__gt=now).first()
    if stamp is not None and stamp.placement_resumes_at is not None:
        until = stamp.placement_resumes_at
        words = f"After a failover of Postgres nothing is placed until {until.isoformat(timespec='seconds')}."
        yield Gate("failover", False, words, now, until)


def _pause_gates(execution: Execution) -> Iterator[Gate]:
    job, queue = execution.job, execution.queue
    paused = job.state == JobState.PAUSED
    words = "Its job is not paused."
    if paused:
        words = "Its job is paused: its schedules do not fire; executions that have fired still run."
    # A blocked execution of a paused job will be skipped, once its dependencies are decided.
    yield Gate("job_pause", not paused or execution.state != State.BLOCKED, words, job.state, None, [job.id])
    words = f"Its queue {queue.name} is {'paused' if queue.paused else 'not paused'}."
    yield Gate("queue_pause", not queue.paused, words, queue.paused, None, [queue.id])


def _network_gates(execution: Execution) -> Iterator[Gate]:
    if execution.version.network:
        allowed = may_use_network(execution.job.owner)
        words = "Its owner may grant it network access, which not every worker offers."
        if not allowed:
            words = PERMISSION_WITHDRAWN
        yield Gate("network_permission", allowed, words, allowed, True)


def _suspect_gates(execution: Execution) -> Iterator[Gate]:
    """Yield the suspect workers that could run it; for a pinned execution only its own."""
    suspects = Worker.objects.filter(pool=execution.queue.pool, status=WorkerStatus.SUSPECT, lease_until__gt=Now())
    if execution.pinned_worker_id is not None:
        suspects = suspects.filter(id=execution.pinned_worker_id)
    for worker in suspects.order_by("name")[:MAX_HOLDERS]:
        words = (
            f"{worker.name} is suspect: it claimed nothing of what was placed on it, and gets nothing until it does."
        )
        yield Gate("suspect", False, words, worker.status, None, [worker.id])


def _refusal_gates(execution: Execution) -> Iterator[Gate]:
    """Yield the workers that are online and refuse work."""
    refusing = Worker.objects.filter(pool=execution.queue.pool, status__in=LIVE_STATUSES, lease_until__gt=Now())
    if execution.pinned_worker_id is not None:
        refusing = refusing.filter(id=execution.pinned_worker_id)
    for worker in refusing.exclude(refusal="").order_by("name")[:MAX_HOLDERS]:
        yield Gate("refusal", False, f"{worker.name} refuses work. {worker.refusal}", None, None, [worker.id])


def _describe_pinned_worker(worker_id: UUID) -> str:
    """Explain why the worker that it is pinned to cannot run it."""
    worker = Worker.objects.filter(id=worker_id).first()
    if worker is None:
        return "The worker that it is pinned to is gone; cancel it, or execute the job on another worker."
    match worker.status:
        case WorkerStatus.DRAINING:
            return f"{worker.name}, which it is pinned to, is draining: it claims nothing until it is restarted."
        case WorkerStatus.SUSPECT:
            return f"{worker.name}, which it is pinned to, is suspect."
        case _:
            return f"{worker.name}, which it is pinned to, is not online; the execution waits for it."


def _add_holders(gate: Gate, execution: Execution, viewer: User) -> Gate:
    """Add the executions that use up a limit; the plan only knows how much is left."""
    rows = Execution.objects.filter(phase=HELD)
    match gate.name:
        case "worker" if not gate.open and execution.pinned_worker_id is not None:
            return replace(gate, words=_describe_pinned_worker(execution.pinned_worker_id))
        case "queue_limit":
            subject, most, rows = "queue", execution.queue.max_concurrency, rows.filter(queue_id=execution.queue_id)
        case "job_limit":
            subject, most, rows = "job", _effective_job_limit(execution), rows.filter(job_id=execution.job_id)
        case "owner_limit":
            owner_id = execution.job.owner_id
            subject, most, rows = "owner", read_execution_quota(owner_id) or None, rows.filter(job__owner_id=owner_id)
        case "reservation":
            return replace(gate, holders=_visible_ids(viewer, Execution.objects.filter(id__in=gate.holders)))
        case _:
            return gate
    if most is None:
        return gate
    active = rows.count()
    words = f"{active} of at most {most} of its {subject} are active."
    if not gate.open and active < most:
        words = f"{active} of at most {most} of its {subject} are active, and others go before it."
    return replace(gate, words=words, value=active, limit=most, holders=_visible_ids(viewer, rows))


def _visible_ids(viewer: User, rows: QuerySet[Execution]) -> list[UUID]:
    return list(shared_with(viewer, rows, job="job").order_by("id").values_list("id", flat=True)[:MAX_HOLDERS])


def _effective_job_limit(execution: Execution) -> int | None:
    """Return the lower limit of its own version and the current one, as placement does."""
    versions = (execution.version, execution.job.current_version)
    limits = [version.max_concurrency for version in versions if version and version.max_concurrency is not None]
    return min(limits, default=None)
