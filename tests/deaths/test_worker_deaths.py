"""SIGKILL of a worker at every stage of a run, and of engines: each execution finishes once, nothing is left."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from uuid import uuid4

import pytest

from tests.deaths.aftermath import check_ended_once
from tests.deaths.journal import Witness, attempts_of
from tests.deaths.laboratory import Laboratory, frozen, make_queue, object_exists
from tests.support.waiting import wait_for

# The documented recovery time of a supervised process.
CRASH_SECONDS = 10.0
LATEST_SECONDS = 30.0  # for a single one, on a busy machine
DEATHS = 6
LOAD = 16
WAITING = 1000
# Logs a counter and the time a hundred times a second; the first attempt never gets to its end.
CHATTY = """\
import os, time

attempt = os.environ["PUNCTUAL_ATTEMPT"]
with open(f"out/of-{attempt}", "w") as file:
    file.write(attempt)
for number in range(6000 if attempt == "1" else 50):
    print(number, time.monotonic(), flush=True)
    time.sleep(0.01)
"""
CHATTED_SECONDS = 3.0
LOST_SECONDS = 1.0  # the documented loss of log lines
# Reading each through the API would take longer than all the rest.
MULTIPLY = """
INSERT INTO jobs_execution
SELECT (jsonb_populate_record(e, jsonb_build_object('id', gen_random_uuid(), 'run_id', gen_random_uuid()))).*
  FROM jobs_execution e, generate_series(1, %s) WHERE e.id = %s
"""


def test_witness_sees_overlapping_attempts() -> None:
    told = [{"PUNCTUAL_EXECUTION_ID": "of-nobody", "PUNCTUAL_ATTEMPT": number} for number in ("1", "2")]
    with Witness().watching() as witness:
        running = [subprocess.Popen(["sleep", "60"], env={**os.environ, **told_one}) for told_one in told]
        try:
            wait_for(lambda: ("of-nobody", ["1", "2"]) in witness.overlaps, "it sees both", seconds=10)
        finally:
            for process in running:
                process.kill()
                process.wait(10)


@pytest.fixture(scope="module", autouse=True)
def _count_crashes_only(laboratory: Laboratory) -> None:
    """Reset the recovery times: the death of a machine, seen before, takes a lease."""
    laboratory.recovered.clear()


def test_killed_while_it_is_idle(laboratory: Laboratory) -> None:
    killed = laboratory.kill(laboratory.stack.process("worker"))
    job = laboratory.submit("idle", 0)
    laboratory.check_end(job, attempts=1, killed=killed, within=LATEST_SECONDS)
    laboratory.check_aftermath()


def test_killed_while_it_fetches(laboratory: Laboratory) -> None:
    """The object store is frozen from before the claim until the worker is dead."""
    worker, store = laboratory.stack.process("worker"), laboratory.stack.process("seaweedfs")
    job = laboratory.submit_for_later("fetching", 0.3)
    with frozen(store):
        laboratory.execute(job)
        laboratory.execution(job, "claimed")
        killed = laboratory.kill(worker)
    execution = laboratory.check_end(job, attempts=2, killed=killed, within=LATEST_SECONDS)
    assert attempts_of(laboratory.stack, execution)[0]["started_at"] is None
    laboratory.check_aftermath()


def test_killed_while_it_runs(laboratory: Laboratory) -> None:
    worker = laboratory.stack.process("worker")
    job = laboratory.submit("running", 2)
    laboratory.wait_for_line(laboratory.execution(job, "running"), "tick")
    killed = laboratory.kill(worker)
    execution = laboratory.check_end(job, attempts=2, killed=killed, within=LATEST_SECONDS)
    assert laboratory.stack.log(execution, attempt=1).startswith("start"), "the log of the dead attempt is kept"
    laboratory.check_aftermath()


def test_killed_during_a_run_with_much_output(laboratory: Laboratory) -> None:
    """The log of the dead attempt is complete up to the last second; its outputs are not published."""
    worker, stack = laboratory.stack.process("worker"), laboratory.stack
    job = laboratory.submit("chatty", 0, script=CHATTY)
    execution = laboratory.execution(job, "running")
    begun_at = wait_for(lambda: counted(stack.log(execution)), "it speaks", seconds=30, every=0.05)[0][1]
    # By the clock, not by arrival: a log that arrives in bursts looks complete just after one.
    wait_for(lambda: time.monotonic() >= begun_at + CHATTED_SECONDS, "it has said much", seconds=30)
    killed = laboratory.kill(worker)
    killed_at = time.monotonic()
    execution = laboratory.check_end(job, attempts=2, killed=killed, within=LATEST_SECONDS)

    former, latter = (counted(stack.log(execution, attempt=attempt)) for attempt in (1, 2))
    for lines in (former, latter):
        assert [number for number, _ in lines] == list(range(len(lines))), "no line is missing or doubled"
    assert former[-1][1] > killed_at - LOST_SECONDS
    check_output(laboratory, execution["id"])
    laboratory.check_aftermath()


def counted(log: str) -> list[tuple[int, float]]:
    """Parse whole lines: the last one may be cut off or still missing."""
    lines = [line.split() for line in log.splitlines(keepends=True) if line.endswith("\n")]
    return [(int(number), float(at)) for number, at in lines]


def test_killed_while_it_uploads(laboratory: Laboratory) -> None:
    """The object store is frozen before the program ends: its last line is stored and its output is not."""
    worker, store = laboratory.stack.process("worker"), laboratory.stack.process("seaweedfs")
    job = laboratory.submit("uploading", 2.5)
    execution = laboratory.execution(job, "running")
    laboratory.wait_for_line(execution, "start")
    with frozen(store):
        laboratory.wait_for_line(execution, "end")
        assert laboratory.execution(job, "running")
        killed = laboratory.kill(worker)
    execution = laboratory.check_end(job, attempts=2, killed=killed, within=LATEST_SECONDS)
    check_output(laboratory, execution["id"])
    laboratory.check_aftermath()


def test_killed_between_upload_and_commit(laboratory: Laboratory) -> None:
    """The execution's row is locked: finishing waits, with log and output already stored."""
    worker = laboratory.stack.process("worker")
    job = laboratory.submit("committing", 2)
    execution = laboratory.execution(job, "running")
    with laboratory.database() as own, laboratory.database() as other, own.transaction():
        own.execute("SELECT 1 FROM jobs_execution WHERE id = %s FOR NO KEY UPDATE", (execution["id"],))
        laboratory.wait_until_blocked(other, own)
        assert object_exists(laboratory, f"outputs/{execution['id']}/1/")
        killed = laboratory.kill(worker)
    execution = laboratory.check_end(job, attempts=2, killed=killed, within=LATEST_SECONDS)
    check_output(laboratory, execution["id"])
    laboratory.check_aftermath()


def test_crash_is_recovered_within_ten_seconds(laboratory: Laboratory) -> None:
    assert len(laboratory.recovered) == DEATHS
    assert statistics.median(laboratory.recovered) <= CRASH_SECONDS, laboratory.recovered


def check_output(laboratory: Laboratory, execution_id: str) -> None:
    """Assert that there is one output, of the attempt that finished."""
    (output,) = laboratory.stack.api.get(f"/executions/{execution_id}/outputs").json()["results"]
    assert laboratory.stack.api.get(output["url"]).text == "2"


@pytest.mark.parametrize("engine", ["postgres", "valkey"])
def test_engine_killed_under_load(laboratory: Laboratory, engine: str) -> None:
    jobs = [laboratory.submit(f"{engine}-{number}", 0.5 + number / 8) for number in range(LOAD)]
    laboratory.execution(jobs[-1], "running")
    laboratory.stack.process(engine).kill()
    for job in jobs:
        check_ended_once(laboratory.stack, laboratory.wait_for_end(job))
    laboratory.check_aftermath()


def test_thousand_executions_waiting_for_their_queue_block_nothing(laboratory: Laboratory) -> None:
    queue = f"narrow-{uuid4().hex[:8]}"
    with laboratory.database() as database:
        make_queue(database, queue, limit=1)
    holder = laboratory.submit("holder", 600, queue=queue)
    laboratory.execution(holder, "running")
    waiting = laboratory.submit("waiting", 0, queue=queue)
    first = laboratory.execution(waiting, "ready")
    with laboratory.database() as database:
        database.execute(MULTIPLY, (WAITING - 1, first["id"]))

    others = [laboratory.submit(f"other-{number}", 0.1) for number in range(5)]
    for job in others:
        check_ended_once(laboratory.stack, laboratory.wait_for_end(job))
    held = laboratory.stack.executions(waiting)
    assert [execution["status"] for execution in held] == ["ready"] * WAITING
    explained = laboratory.stack.api.get(f"/executions/{first['id']}/explain").json()
    assert "1 of at most 1 of its queue are active" in str(explained["gates"])

    for job in (waiting, holder):
        laboratory.stack.api.put(f"/jobs/{job['id']}/cancel").raise_for_status()
    laboratory.check_aftermath()
