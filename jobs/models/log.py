"""What programs wrote, in chunks, partitioned by day; how far each log was indexed and where it is archived.

`day` is the day on which the attempt was claimed: all chunks of an attempt lie in one partition, a reader knows which,
and the primary key makes a repeated write of the same chunk harmless.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from jobs.models.ids import new_id

STREAMS = [("stdout", "stdout"), ("stderr", "stderr")]


class LogChunk(models.Model):
    pk = models.CompositePrimaryKey("day", "execution_id", "attempt", "sequence")
    day = models.DateField()
    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    sequence = models.PositiveIntegerField()
    stream = models.CharField(max_length=6, choices=STREAMS)
    logged_at = models.DateTimeField()
    data = models.BinaryField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(stream__in=["stdout", "stderr"]), name="log_chunk_stream_known"),
        ]

    def __str__(self) -> str:
        return f"{self.execution_id} attempt {self.attempt} chunk {self.sequence}"


class LogSegment(models.Model):
    """Consecutive chunks of one stream as searchable text, made some seconds after they were written."""

    pk = models.CompositePrimaryKey("day", "execution_id", "attempt", "first_sequence", "stream")
    day = models.DateField()
    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    first_sequence = models.PositiveIntegerField()
    stream = models.CharField(max_length=6, choices=STREAMS)
    owner_id = models.IntegerField()
    job_id = models.UUIDField()
    logged_from = models.DateTimeField()
    logged_to = models.DateTimeField()
    # Where each chunk begins in the text, which number it has and when it was written.
    offsets = ArrayField(models.IntegerField())
    sequences = ArrayField(models.IntegerField())
    times = ArrayField(models.DateTimeField())
    carried = models.PositiveIntegerField(help_text="So many characters of the text end the segment before.")
    text = models.TextField()

    def __str__(self) -> str:
        return f"{self.execution_id} attempt {self.attempt} {self.stream} from {self.first_sequence}"


class LogPack(models.Model):
    """An object of the archive: the logs of many attempts, one compressed member each."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    size = models.BigIntegerField()

    def __str__(self) -> str:
        return f"pack {self.id} ({self.size} bytes)"


class AttemptLog(models.Model):
    """An attempt that has written something: how much of it can be searched, and where it lies in the archive."""

    pk = models.CompositePrimaryKey("execution_id", "attempt")
    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    day = models.DateField()
    owner_id = models.IntegerField()
    job_id = models.UUIDField()
    indexed_to = models.IntegerField(default=-1, db_default=-1, help_text="The last sequence that can be searched.")
    # The ends of lines that were not complete when they were indexed: what follows is searched together with them.
    stdout_carry = models.TextField(default="", db_default="", blank=True)
    stderr_carry = models.TextField(default="", db_default="", blank=True)
    pack = models.ForeignKey(LogPack, null=True, on_delete=models.PROTECT, related_name="logs")
    pack_offset = models.BigIntegerField(null=True)
    pack_length = models.BigIntegerField(null=True)
    settled_at = models.DateTimeField(null=True, help_text="Since when it is complete, searchable and archived.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(pack__isnull=True, pack_offset__isnull=True, pack_length__isnull=True)
                | Q(pack__isnull=False, pack_offset__gte=0, pack_length__gt=0),
                name="attempt_log_place_whole",
            ),
        ]
        indexes = [
            # index_logs and archive_logs: what is not settled yet.
            models.Index(fields=["day"], name="attempt_log_unsettled", condition=Q(settled_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"log of {self.execution_id} attempt {self.attempt}"
