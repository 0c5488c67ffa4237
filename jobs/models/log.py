"""What programs wrote, in chunks, partitioned by day.

`day` is the day on which the attempt was claimed: all chunks of an attempt lie in one partition, a reader knows which,
and the primary key makes a repeated write of the same chunk harmless.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class LogChunk(models.Model):
    pk = models.CompositePrimaryKey("day", "execution_id", "attempt", "sequence")
    day = models.DateField()
    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    sequence = models.PositiveIntegerField()
    stream = models.CharField(max_length=6, choices=[("stdout", "stdout"), ("stderr", "stderr")])
    logged_at = models.DateTimeField()
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(stream__in=["stdout", "stderr"]), name="log_chunk_stream_known"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} attempt {self.attempt} chunk {self.sequence}"
