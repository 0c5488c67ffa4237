"""Checks of the dependency graph: cycles, and jobs that no run can reach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import and_, or_
from uuid import UUID

Edge = tuple[UUID, UUID]  # a job and its upstream


def find_cycle(edges: Iterable[Edge]) -> list[UUID] | None:
    """Return a cycle in the order in which its jobs would run; the first job is also the last."""
    try:
        TopologicalSorter(_group_upstreams(edges)).prepare()
    except CycleError as error:
        cycle: list[UUID] = error.args[1]
        return cycle
    return None


def find_job_without_common_root(edges: Iterable[Edge]) -> UUID | None:
    """Return a job whose upstreams share no root job, so that no run reaches them all. The graph must be acyclic."""
    upstreams = _group_upstreams(edges)
    roots: dict[UUID, int] = {}  # as bit sets: a job may have thousands of roots
    for job in TopologicalSorter(upstreams).static_order():
        above = [roots[upstream] for upstream in upstreams.get(job, ())]
        if above and not reduce(and_, above):
            return job
        roots[job] = reduce(or_, above) if above else 1 << len(roots)
    return None


def _group_upstreams(edges: Iterable[Edge]) -> dict[UUID, list[UUID]]:
    found = defaultdict[UUID, list[UUID]](list)
    for job, upstream in edges:
        found[job].append(upstream)
    return found
