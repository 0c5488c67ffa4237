"""Edits of a job's dependencies.

Every job can run: the graph has no cycles, and the upstreams of a job descend from one common root. The new edges
decide about executions of runs under way too, at the latest when the sweep finds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from jobs.access.quotas import check_dependents
from jobs.db import sql
from jobs.domain.dependency_rules import find_cycle, find_job_without_common_root
from jobs.domain.errors import InvalidInput
from jobs.domain.job_spec import DependencySpec
from jobs.models import Dependency, Job, JobState

_MAX_NAMED_JOBS = 10


@dataclass(frozen=True, slots=True)
class _Edge:
    job_id: UUID
    upstream_id: UUID
    scheduled: bool


def read_upstream_states(owner_id: int, dependencies: Iterable[DependencySpec]) -> dict[UUID, str]:
    """Return the states of the owner's jobs among these dependencies."""
    ids = {dependency.job for dependency in dependencies}
    if not ids:
        return {}
    rows = Job.objects.filter(owner_id=owner_id, id__in=ids, deleted_at__isnull=True)
    return dict(rows.values_list("id", "state"))


def check_upstreams(
    dependencies: Sequence[DependencySpec], found: Mapping[UUID, str], *, known: Collection[UUID] = ()
) -> None:
    """Refuse upstreams that are not the owner's or are cancelled, except `known` ones."""
    for index, dependency in enumerate(dependencies):
        if dependency.job in known:
            continue
        if dependency.job not in found:
            raise InvalidInput(f"dependencies.{index}.job", "You have no such job; GET /api/v1/jobs lists them.")
        if found[dependency.job] == JobState.CANCELLED:
            raise InvalidInput(f"dependencies.{index}.job", "That job is cancelled and will not run again.")


def edit_dependencies(job: Job, dependencies: Sequence[DependencySpec]) -> None:
    """Replace the dependencies of a job that is locked, as is its owner's graph."""
    present = dict(Dependency.objects.filter(job=job).values_list("upstream_id", "condition"))
    conditions = {dependency.job: dependency.condition.value for dependency in dependencies}
    if present == conditions:
        return
    check_upstreams(dependencies, read_upstream_states(job.owner_id, dependencies), known=present)
    for index, dependency in enumerate(dependencies):
        if dependency.job == job.id:
            raise InvalidInput(f"dependencies.{index}.job", "A job cannot run after itself.")
    Dependency.objects.filter(job=job).exclude(upstream_id__in=conditions).delete()
    Dependency.objects.bulk_create(
        [Dependency(job=job, upstream_id=upstream, condition=c) for upstream, c in conditions.items()],
        update_conflicts=True,
        unique_fields=["job", "upstream"],
        update_fields=["condition"],
    )
    check_dependents(job.owner_id, conditions.keys() - present.keys())
    check_graph(job)


def check_graph(job: Job) -> None:
    """Refuse the stored edges of a job if some job could never run with them."""
    if problem := find_graph_problem([job.id]):
        raise InvalidInput("dependencies", problem)


def find_graph_problem(job_ids: Sequence[UUID]) -> str | None:
    """Explain why some job could never run with the stored edges of these jobs, or return None."""
    edges = sql.fetch("read_connected_edges", {"job_ids": list(job_ids)}, _Edge)
    if cycle := find_cycle((edge.job_id, edge.upstream_id) for edge in edges):
        return f"These dependencies would form a cycle: {_format_job_names(cycle)}."
    # A job with a schedule starts runs of its own instead of joining those of its upstreams.
    if rootless := find_job_without_common_root(
        (edge.job_id, edge.upstream_id) for edge in edges if not edge.scheduled
    ):
        return (
            f"The upstreams of {_format_job_names([rootless])} never run together:"
            " all of them must descend from one common first job."
        )
    return None


def _format_job_names(job_ids: Sequence[UUID]) -> str:
    names = dict(Job.objects.filter(id__in=job_ids).values_list("id", "name"))
    shown = " → ".join(names[job_id] for job_id in job_ids[:_MAX_NAMED_JOBS])
    return shown if len(job_ids) <= _MAX_NAMED_JOBS else f"{shown} → …"
