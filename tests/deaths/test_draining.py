"""Departing workers: drained by a signal, restarted in turn under load, or lost with their machine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.deaths.aftermath import check_ended_once
from tests.deaths.journal import attempts_of, moment
from tests.deaths.laboratory import LEASE_SECONDS, Laboratory, OwnWorker, frozen, make_queue
from tests.support.waiting import wait_for

DEAD_HOST_SECONDS = LEASE_SECONDS + 5.0
DRAIN_SECONDS = 3.0
RELEASE_SECONDS = 5.0
SLOTS = 4


@pytest.fixture(scope="module")
def twins(laboratory: Laboratory) -> Iterator[tuple[OwnWorker, OwnWorker]]:
    """Two workers on this host, with their own pool and queue."""
    pool = f"pool-{uuid4().hex[:8]}"
    with laboratory.database() as database:
        make_queue(database, pool, pool=pool)
    settings = {
        "PUNCTUAL_WORKERS_ON_HOST": "2",
        "PUNCTUAL_WORKER_SLOTS": str(SLOTS),
        "PUNCTUAL_WORKER_DRAIN_SECONDS": str(DRAIN_SECONDS),
    }
    first, second = (OwnWorker(laboratory, f"{pool}-{number}", pool, settings) for number in range(2))
    yield first, second
    for worker in (first, second):
        worker.stop()


@pytest.fixture
def pair(twins: tuple[OwnWorker, OwnWorker]) -> tuple[OwnWorker, OwnWorker]:
    """Both workers, brought online again."""
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(OwnWorker.start, twins))
    return twins


def holder_of(execution: dict[str, Any], pair: tuple[OwnWorker, OwnWorker]) -> OwnWorker:
    (found,) = [worker for worker in pair if worker.row()["id"] == execution["worker_id"]]
    return found


def test_rolling_restart_under_load_loses_nothing(laboratory: Laboratory, pair: tuple[OwnWorker, OwnWorker]) -> None:
    jobs = [laboratory.submit(f"rolling-{number}", 0.5, queue=pair[0].pool) for number in range(2 * SLOTS)]
    for worker in pair:
        gone = worker.terminate()
        for _ in range(2 * SLOTS):
            # Load continues as fast as the other worker claims it.
            jobs.append(laboratory.submit(f"rolling-{len(jobs)}", 0.5, queue=worker.pool))
            laboratory.wait_until_placed(jobs[-1])
        assert gone.wait(30) == 0
        worker.start()
    for job in jobs:
        execution = laboratory.wait_for_end(job)
        check_ended_once(laboratory.stack, execution)
        assert "lost" not in {attempt["reason"] for attempt in attempts_of(laboratory.stack, execution)}
    laboratory.check_aftermath()


def test_draining_releases_long_runs_and_queued_executions_at_once(
    laboratory: Laboratory, pair: tuple[OwnWorker, OwnWorker]
) -> None:
    long = laboratory.submit("long", DRAIN_SECONDS * 2, queue=pair[0].pool)
    leaving = holder_of(laboratory.execution(long, "running"), pair)
    with frozen(leaving.running):
        # The fuller worker is the better fit and is frozen: the executions wait there.
        waiting = [laboratory.submit(f"short-{n}", 0.1, queue=leaving.pool) for n in range(SLOTS // 2)]
        placed = [laboratory.execution(job, "queued") for job in waiting]
        assert {execution["worker_id"] for execution in placed} == {leaving.row()["id"]}
        gone = leaving.terminate()
    wait_for(lambda: leaving.row()["status"] == "draining", "it reports that it drains", seconds=10)
    assert gone.wait(DRAIN_SECONDS + RELEASE_SECONDS + 10) == 0
    assert leaving.row()["status"] == "offline"
    execution = laboratory.wait_for_end(long)
    check_ended_once(laboratory.stack, execution)
    released, repeated = attempts_of(laboratory.stack, execution)
    assert (released["reason"], repeated["reason"]) == ("released", "exit")
    for job in waiting:
        execution = laboratory.wait_for_end(job)
        check_ended_once(laboratory.stack, execution)
        assert moment(execution["placed_at"]) < moment(released["ended_at"]), "it did not wait for the long one"
    laboratory.check_aftermath()


def test_hanging_fetch_is_released_and_does_not_delay_the_drain(
    laboratory: Laboratory, pair: tuple[OwnWorker, OwnWorker]
) -> None:
    job = laboratory.submit_for_later("hanging", 0.1, queue=pair[0].pool)
    with frozen(laboratory.stack.process("seaweedfs")):
        laboratory.execute(job)
        leaving = holder_of(laboratory.execution(job, "claimed"), pair)
        assert leaving.terminate().wait(DRAIN_SECONDS + RELEASE_SECONDS + 10) == 0
    execution = laboratory.wait_for_end(job)
    check_ended_once(laboratory.stack, execution)
    assert [attempt["reason"] for attempt in attempts_of(laboratory.stack, execution)] == ["released", "exit"]
    leaving.start()
    laboratory.check_aftermath()


def test_dead_machine_is_marked_lost_when_its_lease_ends(
    laboratory: Laboratory, pair: tuple[OwnWorker, OwnWorker]
) -> None:
    job = laboratory.submit("machine", 2, queue=pair[0].pool)
    execution = laboratory.execution(job, "running")
    laboratory.wait_for_line(execution, "tick")
    victim = holder_of(execution, pair)
    killed = victim.kill()
    laboratory.check_end(job, attempts=2, killed=killed, within=DEAD_HOST_SECONDS)
    assert victim.row()["status"] == "lost"
    victim.start()  # the machine comes back, under its name
    laboratory.check_aftermath()
