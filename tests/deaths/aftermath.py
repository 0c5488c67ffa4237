"""Assertions after every death: each execution finished once, and nothing is left of the killed processes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import psycopg

from jobs.db import sql
from tests.deaths.journal import attempts_of, check_journals, living_attempts
from tests.support.stack import Stack
from tests.support.waiting import wait_for

UNFINISHED = "SELECT count(*) FROM jobs_execution WHERE ended_at IS NULL"
ENDED_TWICE = """
SELECT execution_id FROM jobs_attempt GROUP BY execution_id
HAVING count(*) FILTER (WHERE reason NOT IN ('lost', 'released')) > 1 OR count(*) FILTER (WHERE ended_at IS NULL) > 0
"""
SLOT_CGROUP = re.compile(r"punctual-slot-(\d+)-.*")
COMPANIONS = ("workers/sandbox/slots/launcher_process.py", "workers/lease/guardian_process.py")
KEPT_IN_STATE_DIRECTORY = re.compile(r"lock|instance|runs|artifacts(/[0-9a-f]{64})?")


def check_ended_once(stack: Stack, execution: dict[str, Any]) -> None:
    """Assert that the last attempt succeeded, and that no two attempts overlapped."""
    attempts = attempts_of(stack, execution)
    assert execution["status"] == "succeeded", execution
    assert {attempt["reason"] for attempt in attempts[:-1]} <= {"lost", "released"}, attempts
    assert attempts[-1]["reason"] == "exit"
    assert attempts[-1]["number"] == execution["attempt"]
    assert execution["tries_used"] == 1, "lost and released attempts use no try"
    check_journals(stack, execution)


def check_aftermath(
    stack: Stack, database: psycopg.Connection[Any], *, dead: Iterable[int], seconds: float = 60
) -> None:
    """`dead`: the processes that were killed."""
    wait_for(lambda: database.execute(UNFINISHED).fetchone() == (0,), "every execution to finish", seconds=seconds)
    assert database.execute(ENDED_TWICE).fetchall() == [], "each finished once"
    audit = stack.api.get("/audit/attempts", params={"from": "2020-01-01T00:00:00Z"}).raise_for_status().json()
    assert audit["clean"], audit
    for worker in _free_capacity(database):
        assert worker["free"] == worker["capacity"], "nothing is allocated"
    # Other stacks may run on this host.
    ours = {str(row[0]) for row in database.execute("SELECT id FROM jobs_execution")}
    wait_for(lambda: not ours & living_attempts().keys(), "no process of a run is left", seconds=10)
    killed = set(dead)
    wait_for(lambda: not _companions(killed), "no companion of a dead worker is left", seconds=10)
    # The successor removes them before it registers.
    assert not _cgroups(killed), "no cgroup of a dead worker is left"
    for state in stack.var.glob("worker*"):
        assert not _strange_files(state), "no partial file is left"


def _free_capacity(database: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    pools = database.execute("SELECT DISTINCT pool FROM jobs_worker WHERE status = 'online'").fetchall()
    rows = [
        row
        for (pool,) in pools
        for row in database.execute(
            sql.statement("read_free_capacity").encode(), {"pool": pool, "full_ones": True}
        ).fetchall()
    ]
    assert rows, "there are workers"
    capacities = [json.loads(row[9]) for row in rows]
    return [
        {"free": {"slots": row[4], "cpu": row[5], "memory_mb": row[6], "disk_mb": row[7]}, "capacity": capacity}
        for row, capacity in zip(rows, capacities, strict=True)
    ]


def _companions(workers: set[int]) -> list[list[str]]:
    """Return launchers and guardians, whose arguments contain the pid of their worker."""
    pids = {str(pid) for pid in workers}
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [words for words in lines if any(word.endswith(COMPANIONS) for word in words) and pids & set(words)]


def _cgroups(workers: set[int]) -> list[str]:
    return [
        os.path.join(directory, name)
        for directory, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if (match := SLOT_CGROUP.fullmatch(name)) and int(match[1]) in workers
    ]


def _strange_files(state: Path) -> list[str]:
    found = [str(path.relative_to(state)) for path in state.rglob("*")]
    return [name for name in found if not KEPT_IN_STATE_DIRECTORY.fullmatch(name)]
