"""Logs of attempts: chunks and searchable segments, partitioned by day, and the state of index and archive.

`day` is the day of the attempt's claim, so all chunks of an attempt lie in one partition that readers know. The primary
key makes a repeated write of a chunk harmless.
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
    """Consecutive chunks of one stream as searchable text, built some seconds after they were written."""

    pk = models.CompositePrimaryKey("day", "execution_id", "attempt", "first_sequence", "part")
    day = models.DateField()
    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    first_sequence = models.PositiveIntegerField()
    part = models.PositiveIntegerField(help_text="Number of the segment among those that begin in this chunk.")
    stream = models.CharField(max_length=6, choices=STREAMS)
    owner_id = models.IntegerField()
    job_id = models.UUIDField()
    logged_from = models.DateTimeField()
    logged_to = models.DateTimeField()
    # Of each chunk: its offset in the text, its sequence number and its time.
    offsets = ArrayField(models.IntegerField())
    sequences = ArrayField(models.IntegerField())
    times = ArrayField(models.DateTimeField())
    carried = models.PositiveIntegerField(help_text="Length of the overlap with the previous segment, in characters.")
    text = models.TextField()
    # The text folded to lower-case ASCII, for trigrams independent of the database's locale; null: lower(text).
    folded = models.TextField(null=True, db_collation="C")  # noqa: DJ001 - null: not needed

    class Meta:
        indexes = [
            # scan_segments: those of an owner or of a job, newest first. The trigram index is created by a migration.
            models.Index(
                fields=["owner_id", "day", "execution_id", "attempt", "first_sequence", "part"],
                name="log_segment_by_owner",
            ),
            models.Index(
                fields=["job_id", "day", "execution_id", "attempt", "first_sequence", "part"], name="log_segment_by_job"
            ),
        ]

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
    """The log of an attempt: how much of it is indexed, and where it is archived."""

    pk = models.CompositePrimaryKey("execution_id", "attempt")
    execution_id = models.UUIDField()
    attempt = models.PositiveIntegerField()
    day = models.DateField()
    owner_id = models.IntegerField()
    job_id = models.UUIDField()
    indexed_to = models.IntegerField(default=-1, db_default=-1, help_text="Last searchable sequence.")
    indexed_at = models.DateTimeField(null=True, help_text="When the whole log became searchable.")
    # Incomplete last lines at the time of indexing, which are indexed again with their continuation.
    stdout_carry = models.BinaryField(default=b"", db_default=b"")
    stderr_carry = models.BinaryField(default=b"", db_default=b"")
    pack = models.ForeignKey(LogPack, null=True, on_delete=models.PROTECT, related_name="logs")
    pack_offset = models.BigIntegerField(null=True)
    pack_length = models.BigIntegerField(null=True)
    archived_to = models.IntegerField(null=True, help_text="Last archived sequence; -1 for an empty log.")
    archive_failed_at = models.DateTimeField(null=True, help_text="When archiving last failed.")
    settled_at = models.DateTimeField(null=True, help_text="When it was complete, searchable and archived.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                # Compare each column with null, because a check that evaluates to null passes.
                condition=Q(
                    pack__isnull=True, pack_offset__isnull=True, pack_length__isnull=True, archived_to__isnull=True
                )
                | Q(pack__isnull=False, pack_offset__isnull=False, pack_length__isnull=False, archived_to__isnull=False)
                & Q(pack_offset__gte=0, pack_length__gt=0, archived_to__gte=-1),
                name="attempt_log_place_whole",
            ),
        ]
        indexes = [
            # settle_logs: logs not settled yet.
            models.Index(fields=["day"], name="attempt_log_unsettled", condition=Q(settled_at__isnull=True)),
            # read_unindexed_logs: logs that may have more to index, in turn.
            models.Index(
                fields=["execution_id", "attempt"], name="attempt_log_unindexed", condition=Q(indexed_at__isnull=True)
            ),
            # read_storage_use
            models.Index(
                fields=["owner_id"],
                include=["pack_length"],
                name="log_bytes_by_owner",
                condition=Q(pack_length__isnull=False),
            ),
            # read_storage_use: what an owner has in Postgres alone. Without the bytes, which change with every flush.
            models.Index(
                fields=["owner_id"],
                name="log_unarchived_by_owner",
                condition=Q(pack__isnull=True, settled_at__isnull=True),
            ),
            # read_unarchived_logs: logs to be archived, in this order.
            models.Index(
                fields=["day", "execution_id", "attempt"],
                name="attempt_log_unarchived",
                condition=Q(pack__isnull=True, settled_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"log of {self.execution_id} attempt {self.attempt}"


class LogIndexMark(models.Model):
    """How far log indexing has progressed; one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    reached_at = models.DateTimeField(null=True, help_text="Chunks stored before this time are searchable.")
    round_began_at = models.DateTimeField(null=True)
    cursor = models.UUIDField(null=True, help_text="Position of the current round.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="log_index_mark_is_one_row")]

    def __str__(self) -> str:
        return f"logs before {self.reached_at} can be searched"
