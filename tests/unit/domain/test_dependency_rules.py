"""Cycles and jobs without a common root, found in any graph."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.dependency_rules import Edge, find_cycle, find_job_without_common_root


def edges(*pairs: tuple[int, int]) -> list[Edge]:
    return [(UUID(int=job), UUID(int=upstream)) for job, upstream in pairs]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14))
def test_cycle_is_found_iff_there_is_one(pairs: list[tuple[int, int]]) -> None:
    found = find_cycle(edges(*pairs))
    reach = dict.fromkeys(pairs, True)
    for middle in range(8):
        for a in range(8):
            for b in range(8):
                if (a, middle) in reach and (middle, b) in reach:
                    reach[a, b] = True
    assert (found is not None) == any((n, n) in reach for n in range(8))
    if found is not None:
        assert found[0] == found[-1]
        steps = {(later, earlier) for earlier, later in pairwise(found)}
        assert steps <= set(edges(*pairs))


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(0, 6)).filter(lambda p: p[0] > p[1]), max_size=14))
def test_job_without_common_root_is_found_iff_there_is_one(pairs: list[tuple[int, int]]) -> None:
    def roots(job: int) -> set[int]:
        above = [upstream for own, upstream in pairs if own == job]
        return set().union(*(roots(upstream) for upstream in above)) if above else {job}

    def has_no_common_root(job: int) -> bool:
        above = [roots(upstream) for own, upstream in pairs if own == job]
        return bool(above) and not set.intersection(*above)

    found = find_job_without_common_root(edges(*pairs))
    assert (found is not None) == any(has_no_common_root(job) for job in range(8))
    if found is not None:
        assert has_no_common_root(found.int)


@pytest.mark.parametrize("width", [100])
def test_ten_thousand_jobs_are_checked_quickly(width: int) -> None:
    """Layers in which each job depends on three of the previous layer, all below one root."""
    pairs = [(n, 0) for n in range(1, width + 1)]
    for n in range(width + 1, width * width):
        below = (n - 1) // width * width - width
        pairs += [(n, below + 1 + (n * k) % width) for k in (1, 7, 13)]
    assert find_cycle(edges(*pairs)) is None
    assert find_job_without_common_root(edges(*pairs)) is None
