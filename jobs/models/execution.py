"""Executions, their attempts, and the events that are not ordinary.

States are written by `jobs.services.transitions` alone. The check constraints tie a row's worker and stage times to its
state, so that even a wrong statement cannot leave a row that the rest of the code would misread.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import models
from django.db.models import ExpressionWrapper, F, Q, Value
from django.db.models.lookups import GreaterThan

from jobs.models.ids import new_id
from jobs.states import ACTIVE, STARTED, TERMINAL, WAITING, Reason, State, values


class Trigger(models.TextChoices):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    DEPENDENCY = "dependency"
    BACKFILL = "backfill"
    RETRY = "retry"  # somebody had one that ended tried again, as a new one


class DeadLetter(models.TextChoices):
    """What became of an execution that failed for good."""

    OPEN = "open"  # nobody has looked after it yet
    REDRIVEN = "redriven"  # a new execution was made of it
    DISMISSED = "dismissed"


FAILED = {State.FAILED, State.TIMED_OUT}
NEVER_RUN = {State.MISSED, State.SKIPPED}
UNSUCCESSFUL = TERMINAL - {State.SUCCEEDED}
REASONS = [reason.value for reason in Reason]
# Beyond it an id, which tells when an execution was made, says little of when it was to run or when it ended.
LONG = timedelta(hours=1)


def fired_long_after() -> GreaterThan:
    return _apart("scheduled_for", "fired_at")


def ended_long_after() -> GreaterThan:
    return _apart("fired_at", "ended_at")


def _apart(first: str, last: str) -> GreaterThan:
    """Written as a difference: what an index is about must not depend on a time zone, as a sum with an interval may."""
    difference = ExpressionWrapper(F(last) - F(first), models.DurationField())
    return GreaterThan(difference, Value(LONG, models.DurationField()))


class Execution(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="executions", db_index=False)
    version = models.ForeignKey("jobs.JobVersion", on_delete=models.PROTECT, db_index=False)
    schedule = models.ForeignKey("jobs.Schedule", on_delete=models.SET_NULL, null=True, db_index=False)
    queue = models.ForeignKey("jobs.Queue", on_delete=models.PROTECT, db_index=False)
    trigger = models.CharField(max_length=16, choices=Trigger.choices)
    run_id = models.UUIDField(help_text="Shared by everything that one firing set off.")
    scheduled_for = models.DateTimeField()
    retry_of = models.UUIDField(null=True, help_text="The execution that this one repeats; it may be pruned by now.")

    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in State])
    attempt = models.PositiveIntegerField(
        default=0, help_text="Grows with every placement and never repeats: the fence."
    )
    tries_used = models.PositiveIntegerField(default=0)
    times_lost = models.PositiveIntegerField(default=0)
    worker = models.ForeignKey("jobs.Worker", on_delete=models.PROTECT, null=True, db_index=False)
    incarnation = models.PositiveBigIntegerField(null=True)
    pinned_worker = models.ForeignKey(
        "jobs.Worker",
        on_delete=models.PROTECT,
        null=True,
        related_name="pinned_executions",
        db_index=False,
        help_text="The only worker that it may run on; empty: any.",
    )
    rank = models.DateTimeField(help_text="Placement order: the time it became ready, moved by priority.")

    fired_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True)
    retry_at = models.DateTimeField(null=True)
    placed_at = models.DateTimeField(null=True)
    published_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(
        null=True, help_text="No attempt starts after it, and a run gets no more than what is left."
    )

    reason = models.CharField(max_length=24, null=True)  # noqa: DJ001 - null: it has not ended yet
    exit_code = models.IntegerField(null=True)
    signal = models.SmallIntegerField(null=True)  # that ended its program, which then has no exit code
    result = models.JSONField(null=True)
    progress = models.JSONField(null=True, help_text="What the run said last of how far it is, and of which attempt.")
    dead_letter = models.CharField(max_length=16, null=True, choices=DeadLetter.choices)  # noqa: DJ001 - null: it is none

    class Meta:
        constraints = [
            # Promise P1: one execution for an instant of a schedule, whoever fires or backfills it.
            models.UniqueConstraint(fields=["schedule", "scheduled_for"], name="execution_once_per_instant"),
            # One execution of a dependent in a run, however many upstreams end at once.
            models.UniqueConstraint(fields=["run_id", "job"], name="execution_once_per_run"),
            # The history of a retry is a line: whoever wants another one retries the last.
            models.UniqueConstraint(
                fields=["retry_of"], name="execution_retried_once", condition=Q(retry_of__isnull=False)
            ),
            models.CheckConstraint(
                condition=Q(dead_letter__isnull=True) | Q(dead_letter__in=DeadLetter.values, state__in=values(FAILED)),
                name="execution_dead_letter_failed",
            ),
            models.CheckConstraint(condition=Q(state__in=values(State)), name="execution_state_known"),
            models.CheckConstraint(condition=Q(trigger__in=Trigger.values), name="execution_trigger_known"),
            models.CheckConstraint(
                condition=Q(reason__isnull=True) | Q(reason__in=REASONS), name="execution_reason_known"
            ),
            models.CheckConstraint(
                condition=~Q(state__in=values(ACTIVE))
                | Q(worker__isnull=False, incarnation__isnull=False, placed_at__isnull=False, attempt__gte=1),
                name="execution_active_has_worker",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=values(WAITING | NEVER_RUN)) | Q(worker__isnull=True),
                name="execution_waiting_has_no_worker",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=values(STARTED)) | Q(claimed_at__isnull=False),
                name="execution_claimed_at_when_claimed",
            ),
            models.CheckConstraint(
                condition=~Q(state=State.RUNNING.value) | Q(started_at__isnull=False),
                name="execution_started_at_when_running",
            ),
            models.CheckConstraint(
                condition=Q(state__in=values(TERMINAL), ended_at__isnull=False)
                | (~Q(state__in=values(TERMINAL)) & Q(ended_at__isnull=True)),
                name="execution_ended_at_iff_terminal",
            ),
            models.CheckConstraint(
                condition=Q(state=State.BACKING_OFF.value, retry_at__isnull=False)
                | (~Q(state=State.BACKING_OFF.value) & Q(retry_at__isnull=True)),
                name="execution_retry_at_iff_backing_off",
            ),
            models.CheckConstraint(
                condition=~Q(state=State.READY.value) | Q(ready_at__isnull=False), name="execution_ready_at_when_ready"
            ),
        ]
        indexes = [
            # place_ready_executions: each queue in order of rank.
            models.Index(fields=["queue", "rank", "id"], name="execution_ready", condition=Q(state="ready")),
            # wake_backed_off: those whose time has come.
            models.Index(fields=["retry_at"], name="execution_backing_off", condition=Q(state="backing_off")),
            # sweep_blocked: page by page.
            models.Index(fields=["id"], name="execution_blocked", condition=Q(state="blocked")),
            # allocated resources, publishing, reaping and a job's limit: the few that workers hold.
            models.Index(
                fields=["worker", "job"],
                name="execution_active",
                condition=Q(state__in=["queued", "claimed", "running"]),
            ),
            # a job's status, and cancelling it: without its history.
            models.Index(
                fields=["job"], name="execution_unfinished_by_job", condition=Q(state__in=values(WAITING | ACTIVE))
            ),
            # GET /dead-letters
            models.Index(
                fields=["dead_letter", "-id"], name="execution_dead_letters", condition=Q(dead_letter__isnull=False)
            ),
            # expire_overdue: those whose deadline has passed before a worker took them.
            models.Index(
                fields=["deadline_at"],
                name="execution_overdue",
                condition=Q(deadline_at__isnull=False, state__in=values(WAITING | {State.QUEUED})),
            ),
            # GET /executions?job_id=…
            models.Index(fields=["job", "-id"], name="execution_list_by_job"),
            # GET /executions?status=failed; written once, when such an execution ends.
            models.Index(
                fields=["state", "-id"], name="execution_unsuccessful", condition=Q(state__in=values(UNSUCCESSFUL))
            ),
            # GET /jobs?status=failed: the jobs that may have ended so.
            models.Index(
                fields=["state", "-job"],
                name="execution_unsuccessful_by_job",
                condition=Q(state__in=values(UNSUCCESSFUL)),
            ),
            # GET /executions?ended_from=…; written once, when an execution ends.
            models.Index(fields=["ended_at", "id"], name="execution_ended", condition=Q(ended_at__isnull=False)),
            # GET /executions?scheduled_to= and ?ended_from=: the few whose time is far from what their id tells.
            models.Index(fields=["id"], name="execution_drawn_out", condition=fired_long_after() | ended_long_after()),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.state})"


class Attempt(models.Model):
    """A placement that a worker claimed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    number = models.PositiveIntegerField()
    worker = models.ForeignKey("jobs.Worker", on_delete=models.PROTECT, db_index=False)
    incarnation = models.PositiveBigIntegerField()
    placed_at = models.DateTimeField()
    claimed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=24, null=True)  # noqa: DJ001 - null: it has not ended yet
    exit_code = models.IntegerField(null=True)
    signal = models.PositiveSmallIntegerField(null=True)
    error = models.TextField(default="", blank=True)
    cpu_seconds = models.FloatField(null=True)
    peak_memory_bytes = models.BigIntegerField(null=True)
    peak_disk_bytes = models.BigIntegerField(null=True)  # of /work, /tmp and /dev/shm together
    log_truncated = models.BooleanField(default=False)
    # What it has written and announced so far; neither its worker's word nor a count of what is stored.
    log_bytes = models.PositiveBigIntegerField(default=0, db_default=0)
    output_files = models.PositiveIntegerField(default=0, db_default=0)
    output_bytes = models.PositiveBigIntegerField(default=0, db_default=0)
    output_announced = models.CharField(
        max_length=64, default="", db_default="", blank=True, help_text="The hash of the last one."
    )
    receipt = models.JSONField(null=True, help_text="What the sandbox was made of.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["execution", "number"], name="attempt_number_once"),
            models.CheckConstraint(
                # Each column is compared with null: a check that comes out as null passes.
                condition=Q(reason__isnull=True, ended_at__isnull=True)
                | Q(reason__isnull=False, reason__in=REASONS, ended_at__isnull=False),
                name="attempt_reason_iff_ended",
            ),
        ]
        indexes = [
            # GET /executions?worker_id=…; an execution's own worker changes with every placement.
            models.Index(fields=["worker", "-execution"], name="attempt_by_worker"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.execution_id}"


class ExecutionEvent(models.Model):
    """What happened to an execution beside its ordinary stages; partitioned by day."""

    pk = models.CompositePrimaryKey("created_at", "id")
    id = models.UUIDField(default=new_id)
    created_at = models.DateTimeField()
    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=64)
    detail = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["execution_id"], name="event_by_execution")]

    def __str__(self) -> str:
        return f"{self.name} of {self.execution_id}"
