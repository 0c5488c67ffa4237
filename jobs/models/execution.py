"""Executions, their attempts, and their exceptional events.

Only `jobs.execution.transitions` writes states. Check constraints tie a row's worker and timestamps to its state, so
that even a wrong statement cannot leave an inconsistent row. No index names `state`, `claimed_at` or `started_at`, so
claiming and starting an execution writes no index.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import ExpressionWrapper, F, Q, Value
from django.db.models.lookups import GreaterThan

from jobs.domain.states import ACTIVE, HELD, STARTED, TERMINAL, WAITING, Reason, State, sorted_values
from jobs.models.ids import new_id


class Trigger(models.TextChoices):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    DEPENDENCY = "dependency"
    BACKFILL = "backfill"
    RETRY = "retry"  # a user retried a finished execution as a new one


class DeadLetter(models.TextChoices):
    """Handling of an execution that failed for good."""

    OPEN = "open"  # not handled yet
    REDRIVEN = "redriven"  # retried as a new execution
    DISMISSED = "dismissed"


class JobLine(models.IntegerChoices):
    """The job's line in which an execution is parked: those that need network must not block the others."""

    WITHOUT_NETWORK = 1
    WITH_NETWORK = 2


FAILED_STATES = {State.FAILED, State.TIMED_OUT}
NEVER_RUN_STATES = {State.MISSED, State.SKIPPED}
UNSUCCESSFUL_STATES = TERMINAL - {State.SUCCEEDED}
REASONS = [reason.value for reason in Reason]
# Checking a foreign key locks the referenced row, which writes it, once for each execution. Nothing deletes what these
# reference: jobs, versions, schedules and workers stay, and the version of an execution keeps its queue.
UNCHECKED: Any = {"db_index": False, "db_constraint": False}
# Within this, an execution's id, which encodes its creation time, approximates its scheduled and end times.
LONG = timedelta(hours=1)


def fired_long_after() -> GreaterThan:
    return _is_long_after("scheduled_for", "fired_at")


def ended_long_after() -> GreaterThan:
    return _is_long_after("fired_at", "ended_at")


def _is_long_after(first: str, last: str) -> GreaterThan:
    """Compare by difference, which is immutable as an index requires; a sum with an interval depends on the zone."""
    difference = ExpressionWrapper(F(last) - F(first), models.DurationField())
    return GreaterThan(difference, Value(LONG, models.DurationField()))


class Execution(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="executions", **UNCHECKED)
    version = models.ForeignKey("jobs.JobVersion", on_delete=models.PROTECT, **UNCHECKED)
    schedule = models.ForeignKey("jobs.Schedule", on_delete=models.SET_NULL, null=True, **UNCHECKED)
    queue = models.ForeignKey("jobs.Queue", on_delete=models.PROTECT, **UNCHECKED)
    trigger = models.CharField(max_length=16, choices=Trigger.choices)
    run_id = models.UUIDField(help_text="Shared by all executions that follow from one firing.")
    scheduled_for = models.DateTimeField()
    retry_of = models.UUIDField(null=True, help_text="The execution that this one retries; it may be pruned.")

    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in State])
    phase = models.CharField(  # noqa: DJ001 - null: succeeded
        max_length=16, null=True, editable=False, help_text="The state as indexes see it; a trigger writes it."
    )
    attempt = models.PositiveIntegerField(default=0, help_text="Fencing token: increases with every placement.")
    tries_used = models.PositiveIntegerField(default=0)
    times_lost = models.PositiveIntegerField(default=0)
    worker = models.ForeignKey("jobs.Worker", on_delete=models.PROTECT, null=True, **UNCHECKED)
    incarnation = models.PositiveBigIntegerField(null=True)
    pinned_worker = models.ForeignKey(
        "jobs.Worker",
        on_delete=models.PROTECT,
        null=True,
        related_name="pinned_executions",
        **UNCHECKED,
        help_text="The only worker that may run it; empty: any.",
    )
    rank = models.DateTimeField(help_text="Placement order: ready time, moved by priority.")
    # Set while a ready execution is parked and so no placement candidate: see jobs.execution.parking.
    job_line = models.SmallIntegerField(
        null=True, choices=JobLine.choices, help_text="Parked because its job is at its limit."
    )
    owner_line = models.IntegerField(null=True, help_text="Parked because this owner is at a limit.")

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
        null=True, help_text="No attempt starts after it; a run is limited to the remaining time."
    )

    reason = models.CharField(max_length=24, null=True)  # noqa: DJ001 - null: unfinished
    exit_code = models.IntegerField(null=True)
    signal = models.SmallIntegerField(null=True)  # that killed its program, which then has no exit code
    result = models.JSONField(null=True)
    progress = models.JSONField(null=True, help_text="Last reported progress, with its attempt.")
    dead_letter = models.CharField(max_length=16, null=True, choices=DeadLetter.choices)  # noqa: DJ001 - null: none

    class Meta:
        constraints = [
            # Promise P1: one execution per instant of a schedule, whether fired or backfilled.
            models.UniqueConstraint(fields=["schedule", "scheduled_for"], name="execution_once_per_instant"),
            # One execution of a dependent per run, even if several upstreams finish at once.
            # The first execution of a run is its root, whose id is the run's.
            models.UniqueConstraint(
                fields=["run_id", "job"], name="execution_once_per_run", condition=~Q(run_id=F("id"))
            ),
            # Retries form a chain: only its last execution can be retried.
            models.UniqueConstraint(
                fields=["retry_of"], name="execution_retried_once", condition=Q(retry_of__isnull=False)
            ),
            models.CheckConstraint(
                condition=Q(dead_letter__isnull=True)
                | Q(dead_letter__in=DeadLetter.values, state__in=sorted_values(FAILED_STATES)),
                name="execution_dead_letter_failed",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=sorted_values(ACTIVE))
                | Q(worker__isnull=False, incarnation__isnull=False, placed_at__isnull=False, attempt__gte=1),
                name="execution_active_has_worker",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=sorted_values(WAITING | NEVER_RUN_STATES)) | Q(worker__isnull=True),
                name="execution_waiting_has_no_worker",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=sorted_values(STARTED)) | Q(claimed_at__isnull=False),
                name="execution_claimed_at_when_claimed",
            ),
            models.CheckConstraint(
                condition=~Q(state=State.RUNNING.value) | Q(started_at__isnull=False),
                name="execution_started_at_when_running",
            ),
            models.CheckConstraint(
                condition=Q(state__in=sorted_values(TERMINAL), ended_at__isnull=False)
                | (~Q(state__in=sorted_values(TERMINAL)) & Q(ended_at__isnull=True)),
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
            # place_ready_executions: each queue in order of rank, without parked executions.
            models.Index(
                fields=["queue", "rank", "id"],
                name="execution_candidates",
                condition=Q(phase="ready", job_line__isnull=True, owner_line__isnull=True),
            ),
            # unpark_executions: the next execution of a job. find_jobs_with_parked: which jobs have lines.
            models.Index(
                fields=["job", "job_line", "rank", "id"],
                name="execution_lines",
                condition=Q(phase="ready", job_line__isnull=False),
            ),
            # unpark_executions_of_owners: the next execution of an owner, and which owners have lines.
            models.Index(
                fields=["owner_line", "rank", "id"],
                name="execution_owner_lines",
                condition=Q(phase="ready", owner_line__isnull=False),
            ),
            # wake_backed_off: those whose retry time has come.
            models.Index(fields=["retry_at"], name="execution_backing_off", condition=Q(phase="backing_off")),
            # sweep_blocked: page by page.
            models.Index(fields=["id"], name="execution_blocked", condition=Q(phase="blocked")),
            # Allocated resources, republishing, reaping: the few that workers hold, those of older incarnations first.
            models.Index(
                fields=["worker", "incarnation"],
                name="execution_held",
                condition=Q(phase=HELD),
            ),
            # A job's status and cancelling it, without reading its history; its active executions, without its lines.
            models.Index(
                fields=["job", "job_line"],
                name="execution_unfinished_of_job",
                condition=Q(ended_at__isnull=True),
            ),
            # GET /dead-letters
            models.Index(
                fields=["dead_letter", "-id"], name="execution_dead_letters", condition=Q(dead_letter__isnull=False)
            ),
            # expire_overdue: those whose deadline passed before a worker claimed them.
            models.Index(
                fields=["deadline_at"],
                name="execution_overdue",
                condition=Q(deadline_at__isnull=False, ended_at__isnull=True),
            ),
            # GET /executions?job_id=…
            models.Index(fields=["job", "-id"], name="execution_list_by_job"),
            # GET /executions?status=failed; written once, when such an execution finishes.
            models.Index(
                fields=["phase", "-id"],
                name="execution_unsuccessful",
                condition=Q(phase__in=sorted_values(UNSUCCESSFUL_STATES)),
            ),
            # GET /jobs?status=failed: candidate jobs.
            models.Index(
                fields=["phase", "-job"],
                name="execution_unsuccessful_by_job",
                condition=Q(phase__in=sorted_values(UNSUCCESSFUL_STATES)),
            ),
            # GET /executions?ended_from=…; written once, when an execution finishes.
            models.Index(fields=["ended_at", "id"], name="execution_ended", condition=Q(ended_at__isnull=False)),
            # GET /executions?scheduled_to= and ?ended_from=: the few whose times are far from that of their id.
            models.Index(fields=["id"], name="execution_drawn_out", condition=fired_long_after() | ended_long_after()),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.state})"


class Attempt(models.Model):
    """An attempt: a placement that a worker claimed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    execution = models.ForeignKey(Execution, on_delete=models.CASCADE, related_name="attempts", **UNCHECKED)
    number = models.PositiveIntegerField()
    worker = models.ForeignKey("jobs.Worker", on_delete=models.PROTECT, **UNCHECKED)
    incarnation = models.PositiveBigIntegerField()
    placed_at = models.DateTimeField()
    claimed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=24, null=True)  # noqa: DJ001 - null: unfinished
    exit_code = models.IntegerField(null=True)
    signal = models.PositiveSmallIntegerField(null=True)
    error = models.TextField(default="", blank=True)
    cpu_seconds = models.FloatField(null=True)
    peak_memory_bytes = models.BigIntegerField(null=True)
    peak_disk_bytes = models.BigIntegerField(null=True)  # of /work, /tmp and /dev/shm together
    log_truncated = models.BooleanField(default=False)
    # Logs and outputs accepted so far, counted by the server.
    log_bytes = models.PositiveBigIntegerField(default=0, db_default=0)
    output_files = models.PositiveIntegerField(default=0, db_default=0)
    output_bytes = models.PositiveBigIntegerField(default=0, db_default=0)
    output_announced = models.CharField(
        max_length=64, default="", db_default="", blank=True, help_text="SHA-256 of the last announced output."
    )
    receipt = models.JSONField(null=True, help_text="The sandbox of the run: namespaces, limits, network.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["execution", "number"], name="attempt_number_once"),
            models.CheckConstraint(
                # Compare each column with null, because a check that evaluates to null passes.
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
    """An exceptional event of an execution; partitioned by day."""

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
