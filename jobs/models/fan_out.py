"""Fan-outs: finished upstreams whose dependents beat still has to create or decide, page by page."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.ids import new_id

FIRST = "00000000-0000-0000-0000-000000000000"
# Sorts last: the job's own execution has to be created or decided before its dependents.
ITSELF = "ffffffff-ffff-ffff-ffff-ffffffffffff"


class FanOutStep(models.TextChoices):
    CREATE = "create"  # creates the run's missing executions; the run is undecided until then
    DECIDE = "decide"  # decides the waiting dependents


class FanOut(models.Model):
    """Inserted when an upstream finishes or a page creates an execution; deleted with the last page."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    run_id = models.UUIDField()
    job_id = models.UUIDField(help_text="The upstream.")
    step = models.CharField(max_length=8, choices=FanOutStep.choices)
    after = models.UUIDField(default=FIRST, help_text="The last dependent job that was processed.")
    try_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run_id", "job_id", "step"], name="fan_out_once"),
            models.CheckConstraint(condition=Q(step__in=FanOutStep.values), name="fan_out_step_known"),
        ]
        # lock_due_fan_outs: the longest waiting first.
        indexes = [models.Index(fields=["step", "try_at"], name="fan_out_due")]

    def __str__(self) -> str:
        return f"{self.step} what depends on {self.job_id} in {self.run_id}"
