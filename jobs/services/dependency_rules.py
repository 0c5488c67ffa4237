"""What runs after what, as a graph of values: whether it can ever be run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from operator import and_, or_
from uuid import UUID

Edge = tuple[UUID, UUID]  # a job and one that it runs after


def find_cycle(edges: Iterable[Edge]) -> list[UUID] | None:
    """Jobs that wait for each other in a circle, in the order in which they would run; the first is also the last."""
    try:
        TopologicalSorter(_upstreams(edges)).prepare()
    except CycleError as error:
        cycle: list[UUID] = error.args[1]
        return cycle
    return None


def find_rootless(edges: Iterable[Edge]) -> UUID | None:
    """A job whose upstreams descend from no common first job, so that no run reaches them all; without cycles only."""
    upstreams = _upstreams(edges)
    roots: dict[UUID, int] = {}  # as bits: a job may descend from thousands
    for job in TopologicalSorter(upstreams).static_order():
        above = [roots[upstream] for upstream in upstreams.get(job, ())]
        if above and not reduce(and_, above):
            return job
        roots[job] = reduce(or_, above) if above else 1 << len(roots)
    return None


def _upstreams(edges: Iterable[Edge]) -> dict[UUID, list[UUID]]:
    found = defaultdict[UUID, list[UUID]](list)
    for job, upstream in edges:
        found[job].append(upstream)
    return found
