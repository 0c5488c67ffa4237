"""What goes on beside the beats: people who pause, resume, edit, backfill and cancel at random, a worker that ends what
it is given, and the system tasks that fill the due window and advance backfills.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import transaction

from jobs.db.clock import database_now
from jobs.definitions import lifecycle
from jobs.definitions.editing import edit_job
from jobs.domain.choices import Overlap
from jobs.domain.errors import Conflict, InvalidInput, StaleAttempt
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.recurrence import CatchUp, Kind
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, RunReport
from jobs.execution import completion, transitions
from jobs.execution.attempts import claim_attempt, finish_attempt, start_attempt
from jobs.fleet.leases import renew_lease
from jobs.models import Execution, Job, Schedule
from jobs.scheduling.backfill import advance_backfills, request_backfill
from jobs.tasks import refill_due_window
from tests.support.factories import make_worker

REFILL_SECONDS = 5.0
RENEW_SECONDS = 5.0
RUNS_A_TURN = 10
LONGEST_BACKFILL_SECONDS = 30.0


class Bystander:
    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._worker = make_worker(name="bystander", slots=30)
        self._next_renewal = self._next_refill = 0.0

    def take_turn(self) -> None:
        now = time.monotonic()
        if now >= self._next_renewal:
            self._next_renewal = now + RENEW_SECONDS
            renew_lease(self._worker, [])
        if now >= self._next_refill:
            self._next_refill = now + REFILL_SECONDS
            refill_due_window()
        self._run_some()
        advance_backfills()
        try:
            self._choose.choices(*zip(*self._deeds(), strict=True))[0](self._some_job())
        except (Conflict, InvalidInput) as refusal:
            print(f"Refused: {refusal}", file=sys.stderr)

    def _deeds(self) -> list[tuple[Callable[[UUID], None], float]]:
        return [
            (lambda job: lifecycle.pause_job(job, note="somebody's mood"), 2),
            (lifecycle.resume_job, 4),
            (self._edit, 2),
            (self._backfill, 2),
            (self._cancel_some, 1),
            (lambda job: None, 4),
        ]

    def _some_job(self) -> UUID:
        return self._choose.choice(list(Job.objects.order_by("id").values_list("id", flat=True)))

    def _backfill(self, job_id: UUID) -> None:
        """Of the last seconds: just where beats fire, and catch up."""
        to = database_now()
        from_ = to - timedelta(seconds=self._choose.uniform(1, LONGEST_BACKFILL_SECONDS))
        request_backfill(job_id, from_at=from_, to_at=to, by="bystander")

    def _edit(self, job_id: UUID) -> None:
        """Most often one schedule of the job, else the job itself; sometimes one is exchanged for a new one."""
        rows = list(Schedule.objects.filter(job_id=job_id).order_by("id"))
        edits = [ScheduleEdit(id=row.id) for row in rows]
        at = self._choose.randrange(len(rows))
        row, every = rows[at], self._choose.choice(["1", "1.5", "2", "3"])
        match self._choose.randrange(6):
            case 0:
                edits[at] = ScheduleEdit(id=row.id, jitter_seconds=self._choose.uniform(0, 2))
            case 1 if row.kind in (Kind.EVERY, Kind.DELAY):
                edits[at] = ScheduleEdit(id=row.id, expression=every)
            case 2:
                edits[at] = ScheduleEdit(id=row.id, catch_up=self._choose.choice(list(CatchUp)))
            case 3:
                edits[at] = ScheduleEdit(id=row.id, max_count=row.settled_count + self._choose.randint(1, 30))
            case 4 if row.ends_at is not None:
                edits[at] = ScheduleEdit(kind=Kind.EVERY, expression=every, ends_at=row.ends_at)
            case _:
                edit_job(job_id, JobEdit(overlap=self._choose.choice(list(Overlap))))
                return
        edit_job(job_id, JobEdit(schedules=edits))

    def _cancel_some(self, job_id: UUID) -> None:
        waiting = list(Execution.objects.filter(job_id=job_id, state="ready").values_list("id", flat=True)[:50])
        with transaction.atomic():
            completion.on_finished(transitions.cancel(waiting, by="bystander"))

    def _run_some(self) -> None:
        """As a worker does, without the program."""
        worker_id, incarnation = self._worker.worker_id, self._worker.incarnation
        given = Execution.objects.filter(worker_id=worker_id, incarnation=incarnation, state="queued").order_by("id")
        for execution_id, attempt in list(given.values_list("id", "attempt")[:RUNS_A_TURN]):
            hold = AttemptFence(execution_id, attempt, worker_id, incarnation)
            try:
                claim_attempt(hold)
                start_attempt(hold, {})
                finish_attempt(hold, RunReport(Reason.EXIT, exit_code=self._choose.choice([0, 0, 0, 1])))
            except StaleAttempt:
                continue  # somebody has cancelled it meanwhile
