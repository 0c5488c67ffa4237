"""Edits of what a job runs after.

The graph stays one that can run: no circles, and whatever waits for several jobs descends from one that they share.
What waits in runs that are under way is decided by the new edges, at the latest by the sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from jobs import sql
from jobs.errors import InvalidInput
from jobs.models import Dependency, Job, JobState
from jobs.services.dependency_rules import find_cycle, find_rootless
from jobs.services.job_spec import DependencySpec

# More of a circle is not read by anybody.
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class _Edge:
    job_id: UUID
    upstream_id: UUID
    scheduled: bool


def read_upstreams(owner_id: int, wanted: Iterable[DependencySpec]) -> dict[UUID, str]:
    """The states of those that are jobs of the owner."""
    ids = {dependency.job for dependency in wanted}
    rows = Job.objects.filter(owner_id=owner_id, id__in=ids, deleted_at__isnull=True)
    return dict(rows.values_list("id", "state")) if ids else {}


def check_upstreams(
    wanted: Sequence[DependencySpec], found: Mapping[UUID, str], *, known: Collection[UUID] = ()
) -> None:
    """That they are jobs of the owner, and will run again unless they were `known` before."""
    for index, dependency in enumerate(wanted):
        if dependency.job in known:
            continue
        if dependency.job not in found:
            raise InvalidInput(f"dependencies.{index}.job", "There is no such job of yours.")
        if found[dependency.job] == JobState.CANCELLED:
            raise InvalidInput(f"dependencies.{index}.job", "That job is cancelled and will not run again.")


def edit_dependencies(job: Job, wanted: Sequence[DependencySpec]) -> None:
    """Of a locked job whose owner's graph is locked too."""
    present = dict(Dependency.objects.filter(job=job).values_list("upstream_id", "condition"))
    conditions = {dependency.job: dependency.condition.value for dependency in wanted}
    if present == conditions:
        return
    check_upstreams(wanted, read_upstreams(job.owner_id, wanted), known=present)
    for index, dependency in enumerate(wanted):
        if dependency.job == job.id:
            raise InvalidInput(f"dependencies.{index}.job", "A job cannot run after itself.")
    Dependency.objects.filter(job=job).exclude(upstream_id__in=conditions).delete()
    Dependency.objects.bulk_create(
        [Dependency(job=job, upstream_id=upstream, condition=c) for upstream, c in conditions.items()],
        update_conflicts=True,
        unique_fields=["job", "upstream"],
        update_fields=["condition"],
    )
    check_graph(job)


def check_graph(job: Job) -> None:
    """After its edges were stored: refuses them if something could never run with them."""
    if problem := find_unrunnable([job.id]):
        raise InvalidInput("dependencies", problem)


def find_unrunnable(job_ids: Sequence[UUID]) -> str | None:
    """Why something could never run with the edges of these jobs, which are stored by now; None if all can."""
    edges = sql.fetch("edges_around", {"job_ids": list(job_ids)}, _Edge)
    if cycle := find_cycle((edge.job_id, edge.upstream_id) for edge in edges):
        return f"These jobs would wait for each other in a circle: {_named(cycle)}."
    # One with a schedule of its own starts runs instead of taking part in those of its upstreams.
    if rootless := find_rootless((edge.job_id, edge.upstream_id) for edge in edges if not edge.scheduled):
        return (
            f"The jobs that {_named([rootless])} would run after never run together:"
            " they must all descend from one common first job."
        )
    return None


def _named(job_ids: Sequence[UUID]) -> str:
    names = dict(Job.objects.filter(id__in=job_ids).values_list("id", "name"))
    shown = " → ".join(names[job_id] for job_id in job_ids[:_MOST_NAMED])
    return shown if len(job_ids) <= _MOST_NAMED else f"{shown} → …"
