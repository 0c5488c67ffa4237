"""Processes that can be killed, and what a beat had in its hands when it was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
AIM_SECONDS = 5.0
END_SECONDS = 10.0
# Firing is what takes schedules' rows; the foreign keys of what it inserts hold the table in the same mode.
LOOK = """
SELECT coalesce(bool_or(a.state IN ('active', 'idle in transaction')), false),
       coalesce(bool_or(EXISTS (
           SELECT FROM pg_locks l
            WHERE l.pid = a.pid AND l.relation = 'jobs_schedule'::regclass AND l.mode = 'RowShareLock')), false)
  FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.application_name = %s
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a process was doing in the database when it was stopped."""

    in_transaction: bool
    firing: bool  # in the transaction that fires
    committed: bool = False  # or just after it


class Victim:
    """A process of ours that runs until it is killed; Postgres knows it by its name."""

    def __init__(self, name: str, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._command = command
        self._environment = {**environment, "PGAPPNAME": name}
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def is_up(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def died(self) -> bool:
        """Ended, though nobody has killed it."""
        return self._child is not None and self._child.poll() is not None

    @property
    def is_at_work(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = %s)", [self.name])
            (connected,) = cursor.fetchone()
        return self.is_up and bool(connected)

    def kill(self) -> Moment:
        """At once, wherever it is. It is stopped first, so that what is seen is what it dies in."""
        if self.is_up:
            os.kill(self._pid, signal.SIGSTOP)
        moment = self._look()
        self.end()
        return moment

    def kill_firing(self, choose: random.Random) -> Moment | None:
        """While it fires, or just after it has committed that; where exactly is chance. None: it did not in time."""
        deadline = time.monotonic() + AIM_SECONDS
        just_committed = choose.random() < 0.6
        found = Moment(in_transaction=False, firing=False)
        while time.monotonic() < deadline and self.is_up:
            os.kill(self._pid, signal.SIGSTOP)
            before, found = found, self._look()
            committed = before.firing and not found.firing
            if committed if just_committed else found.firing:
                self.end()
                return replace(found, committed=committed)
            os.kill(self._pid, signal.SIGCONT)
            # What lies between a commit and what follows it is short: step, do not jump.
            time.sleep(choose.uniform(0.00002, 0.0003) if found.firing else choose.uniform(0.001, 0.02))
        return None

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait(END_SECONDS)

    def _look(self) -> Moment:
        with connection.cursor() as cursor:
            cursor.execute(LOOK, [self.name])
            return Moment(*cursor.fetchone())

    @property
    def _pid(self) -> int:
        assert self._child is not None, f"{self.name} is not running"
        return self._child.pid


def beat(number: int, environment: Mapping[str, str], log: Path) -> Victim:
    command = [sys.executable, "-m", "celery", "-A", "scheduler_project", "beat", "--pidfile=", "--loglevel=WARNING"]
    return Victim(f"killed beat {number}", command, environment, log)


def bystander(seed: int, environment: Mapping[str, str], log: Path) -> Victim:
    return Victim("killed bystander", [sys.executable, "-m", "tools.killing.bystander", str(seed)], environment, log)
