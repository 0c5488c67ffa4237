"""Starts wait for the end of a short run; a thread stores those of longer ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from uuid import uuid4

from jobs.domain.worker_protocol import AttemptFence, RunStart
from tests.support.waiting import eventually
from workers.control_plane.deferred_starts import DELAY_SECONDS, DeferredStarts
from workers.errors import ControlPlaneUnavailable

RECEIPT = {"namespaces": ["pid"]}


def fence() -> AttemptFence:
    return AttemptFence(uuid4(), 1, uuid4(), 1)


def test_start_is_known_until_the_run_has_ended() -> None:
    may_store = threading.Event()

    def store(starts: Mapping[AttemptFence, RunStart]) -> None:
        may_store.wait(30)

    starts, own = DeferredStarts(store), fence()
    starts.add(own, RECEIPT)
    found = starts.find(own)
    assert found is not None
    assert found.receipt == RECEIPT
    starts.forget(own)
    assert starts.find(own) is None
    may_store.set()


def test_starts_of_runs_that_go_on_are_stored_together() -> None:
    stored: list[Mapping[AttemptFence, RunStart]] = []
    starts, fences = DeferredStarts(stored.append), {fence() for _ in range(3)}
    for each in fences:
        starts.add(each, RECEIPT)
    assert eventually(lambda: {each for batch in stored for each in batch} == fences)
    assert eventually(lambda: all(starts.find(each) is None for each in fences))
    assert all(start.seconds_ago >= DELAY_SECONDS for batch in stored for start in batch.values())


def test_start_that_could_not_be_stored_is_tried_again() -> None:
    tries: list[int] = []

    def store(starts: Mapping[AttemptFence, RunStart]) -> None:
        tries.append(len(starts))
        if len(tries) == 1:
            assert starts.keys() == {own}
            raise ControlPlaneUnavailable("away")

    starts, own = DeferredStarts(store), fence()
    starts.add(own, RECEIPT)
    assert eventually(lambda: starts.find(own) is None)
    assert tries == [1, 1]
