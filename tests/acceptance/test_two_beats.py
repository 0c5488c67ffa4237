"""Two beats at once for a minute: one execution per instant, none missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_for

SCHEDULES = 50
MINUTE = timedelta(seconds=60)


@pytest.fixture
def second_beat(stack: Stack) -> Iterator[subprocess.Popen[bytes]]:
    environment = stack.process("beat").environ()
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "scheduler_project", "beat", "--pidfile="],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield beat
    beat.terminate()
    beat.wait(30)


def test_two_beats_fire_every_instant_once(stack: Stack, second_beat: subprocess.Popen[bytes]) -> None:
    # Nobody offers this capability: the executions stay ready, and the beats have the machine to themselves.
    jobs = [
        stack.submit(
            name=f"second-{number}",
            runtime="bash",
            script="true",
            requirements={"capabilities": ["nobody"]},
            schedules=[{"every_seconds": 1}],
        )
        for number in range(SCHEDULES)
    ]
    first = {job["id"]: datetime.fromisoformat(job["schedules"][0]["next_instant"]) for job in jobs}
    last_job, until = jobs[-1], max(first.values()) + MINUTE

    wait_for(
        lambda: (
            datetime.fromisoformat(stack.api.get(f"/jobs/{last_job['id']}").json()["schedules"][0]["next_instant"])
            > until
        ),
        "a minute has passed",
        seconds=150,
    )
    assert second_beat.poll() is None, "the second beat ran all the time"
    for job in jobs:
        stack.api.put(f"/jobs/{job['id']}/cancel").raise_for_status()

    for job in jobs:
        executions = stack.executions(job)
        instants = sorted(datetime.fromisoformat(e["scheduled_for"]) for e in executions)
        count = len(instants)
        assert instants == [first[job["id"]] + timedelta(seconds=n) for n in range(count)]
        assert count >= MINUTE.total_seconds()
        assert {e["status"] for e in executions} == {"cancelled"}, "none was missed or skipped"
