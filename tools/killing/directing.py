"""Kills beats at random moments while they fire, lets them settle everything, and asks the auditor.

The seed decides who is killed and for how long nobody runs; where in its work a beat is hit is up to the machine.
Whatever was lost, doubled or left unsettled is for the auditor to find: nothing here judges an execution.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import redis
from django.conf import settings
from django.db import connection

from jobs.db.clock import database_now
from jobs.db.wakeups import BEAT_CHANNEL
from jobs.definitions import lifecycle
from jobs.models import Execution, Job, JobState, Queue, Schedule, ScheduleVersion
from jobs.storage import s3
from jobs.tasks import refill_due_window
from jobs.verify.firings import TOLERANCE_SECONDS
from tests.support.factories import make_user
from tools.killing.beats import ROOT, Victim, beat, bystander
from tools.killing.population import add_single, populate
from tools.killing.report import Report

BEATS = 3
MAKING_SECONDS = 15.0
START_SECONDS = 60.0
# Longer than the verifier's grace: what no beat has settled by then is overdue.
SETTLE_SECONDS = 25.0
OVERDUE_SECONDS = TOLERANCE_SECONDS + 2
AUDIT_SECONDS = 120.0
# Longer than a busy beat is excused for, so that catching up has something to decide.
LONG_DOWNTIME_SECONDS = 13.0
LONG_DOWNTIME_EVERY_SECONDS = 75.0
QUIET_SECONDS = 2.0
LONG_ENOUGH_SECONDS = 120.0
COMPLAINTS = 40


def run_killing(*, seconds: float, seed: int) -> Report:
    """Django and its engines are up, the database is migrated and empty, and nobody else fires."""
    s3.create_bucket()
    Queue.objects.get_or_create(name="default")
    began = database_now()
    with tempfile.TemporaryDirectory(prefix="punctual-killing-") as directory:
        killing = _Killing(Report(seed, seconds), Path(directory) / "log")
        try:
            killing.run()
        finally:
            killing.end()
        report = killing.report
        report.versions = ScheduleVersion.objects.count()
        report.exit_code, report.audit = _audit(began)
        report.complaints = killing.complaints()
    return report


class _Killing:
    def __init__(self, report: Report, log: Path) -> None:
        self.report = report
        self._log = log
        self._choose = random.Random(report.seed)  # noqa: S311 - chance, not a secret
        environment = _environment()
        self._beats = [beat(number, environment, log) for number in range(BEATS)]
        self._bystander = bystander(report.seed, environment, log)
        # In the middle of a short run, and again and again in a long one.
        self._next_long_downtime = time.monotonic() + min(report.seconds * 0.4, LONG_DOWNTIME_EVERY_SECONDS)

    def run(self) -> None:
        deadline = time.monotonic() + LONG_ENOUGH_SECONDS
        end = self._kill_for_a_while()
        # A busy machine needs longer to come to enough moments that matter.
        while self.report.missing_kills() and time.monotonic() < deadline:
            end = self._kill_for_a_while()
        self._bystander.end()
        self._settle(end)
        self._fire_unannounced()

    def _kill_for_a_while(self) -> datetime:
        """Returns when the schedules ended."""
        began = database_now()
        # A full minute is in it, for the sake of cron, and comes after all schedules were made.
        full = (began + timedelta(seconds=MAKING_SECONDS)).replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = max(began + timedelta(seconds=self.report.seconds), full + timedelta(seconds=2))
        populate(make_user(), end, self._choose)
        for victim in (*self._beats, self._bystander):
            if not victim.is_up:
                victim.start()
        _wait(Execution.objects.exists, START_SECONDS)
        while database_now() < end:
            _pass(self._choose.uniform(0.1, 0.8))
            self._strike()
        return end

    def end(self) -> None:
        for victim in (*self._beats, self._bystander):
            victim.end()

    def complaints(self) -> list[str]:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if re.search("ERROR| WARNING |Error:|refused", line)][-COMPLAINTS:]

    def _strike(self) -> None:
        """Something random to somebody random."""
        self._replace_the_dead()
        if time.monotonic() >= self._next_long_downtime:
            self._next_long_downtime = time.monotonic() + LONG_DOWNTIME_EVERY_SECONDS
            self._take_all_down(LONG_DOWNTIME_SECONDS)
        elif ready := [each for each in self._beats if each.is_at_work]:
            chance = self._choose.random()
            if chance < 0.07:
                self._take_all_down(self._choose.uniform(0, 4))
            elif chance < 0.2:
                self._bystander.end()
                self.report.bystanders_killed += 1
                self._bystander.start()
            else:
                self._kill_one(self._choose.choice(ready), aimed=chance < 0.88)

    def _kill_one(self, victim: Victim, *, aimed: bool) -> None:
        moment = victim.kill_firing(self._choose) if aimed else victim.kill()
        if moment is not None:
            self.report.add(moment)
            victim.start()

    def _take_all_down(self, seconds: float) -> None:
        for victim in self._beats:
            self.report.add(victim.kill())
        self.report.downtimes += 1
        self.report.downtime_seconds += seconds
        _pass(seconds)
        for victim in self._beats:
            victim.start()

    def _replace_the_dead(self) -> None:
        for victim in self._beats:
            if victim.died:
                self.report.died += 1
                victim.end()
                victim.start()
        if self._bystander.died:
            self._bystander.end()
            self._bystander.start()

    def _settle(self, end: datetime) -> None:
        """The schedules have ended: what they had due is settled now, or never."""
        for job_id in Job.objects.filter(state=JobState.PAUSED).values_list("id", flat=True):
            lifecycle.resume_job(job_id)
        _wait(self._all_beats_sleep, START_SECONDS)
        unsettled = Schedule.objects.filter(next_instant__lte=end)
        _wait(lambda: not unsettled.exists(), SETTLE_SECONDS)

    def _fire_unannounced(self) -> None:
        """A single instant in the quiet that follows, of which nobody told beat: whoever stored it died before that."""
        refill_due_window()
        now = database_now()
        schedule = add_single(now + timedelta(seconds=QUIET_SECONDS), now)
        _wait(lambda: Execution.objects.filter(schedule=schedule).exists(), QUIET_SECONDS + OVERDUE_SECONDS)

    def _all_beats_sleep(self) -> bool:
        """At least once since each was started: it listens for wake-ups only then."""
        with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
            ((_, listening),) = client.pubsub_numsub(BEAT_CHANNEL)
        return int(listening) >= len(self._beats)


def _audit(began: datetime) -> tuple[int, dict[str, object]]:
    """As on a server: the command, and its exit code."""
    ended = subprocess.run(
        [sys.executable, "manage.py", "audit_firings", "--json", "--from", began.isoformat()],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=AUDIT_SECONDS,
        check=False,
    )
    if not ended.stdout.startswith("{"):
        raise RuntimeError(f"The auditor ended with exit code {ended.returncode} and no report: {ended.stderr}")
    found: dict[str, object] = json.loads(ended.stdout)
    return ended.returncode, found


def _environment() -> dict[str, str]:
    """Ours, with the database that we are connected to, which in tests is not the configured one."""
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    return {**os.environ, "DATABASE_URL": urlunsplit(database)}


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    """Until then or so long; what did not come true is for the auditor to say."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        _pass(0.1)


def _pass(seconds: float) -> None:
    """The moments in between are the experiment, not a wait for anything."""
    time.sleep(seconds)
