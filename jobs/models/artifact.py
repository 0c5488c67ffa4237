"""Artifacts (programs and inputs of runs), outputs and storage quotas; the bytes live in the object store.

An artifact is addressed by its content: its row never points to other bytes.
"""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from jobs.domain import limits
from jobs.models.ids import new_id


class Artifact(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="artifacts", db_index=False
    )
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    wanted_at = models.DateTimeField(
        db_default=Now(), editable=False, help_text="When it was last announced, completed or used."
    )
    doomed_at = models.DateTimeField(
        null=True, editable=False, help_text="Start of its collection: its bytes may be deleted already."
    )
    verified_at = models.DateTimeField(null=True, editable=False, help_text="When the stored bytes were verified.")
    deleted_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When its bytes were deleted; the row stays for old versions.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "sha256"], name="artifact_once_per_owner"),
            models.CheckConstraint(condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="artifact_sha256_hex"),
            models.CheckConstraint(condition=Q(size__gte=0), name="artifact_size_not_negative"),
        ]
        indexes = [
            # collect_artifact: other artifacts with the same bytes.
            models.Index(fields=["sha256"], name="artifact_by_hash"),
            models.Index(fields=["doomed_at"], name="artifact_doomed", condition=Q(doomed_at__isnull=False)),
            # GET /artifacts; read_storage_use: an owner's usage, by an index-only scan.
            models.Index(
                fields=["owner", "-id"],
                include=["size"],
                name="artifact_by_owner",
                condition=Q(deleted_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.sha256[:12]} ({self.size} bytes)"


class Output(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # The job's owner, who never changes; storage usage is summed by owner.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="outputs", db_index=False
    )
    attempt = models.ForeignKey("jobs.Attempt", on_delete=models.CASCADE, related_name="outputs")
    name = models.CharField(max_length=1024)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "name"], name="output_name_once_per_attempt"),
            models.CheckConstraint(condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="output_sha256_hex"),
        ]
        # read_storage_use
        indexes = [models.Index(fields=["owner"], include=["size"], name="output_bytes_by_owner")]

    def __str__(self) -> str:
        return self.name


class OwnerQuota(models.Model):
    """Limits of one owner; an empty field means the installation's default."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="quota")
    storage_mb = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Artifacts, published outputs and logs together, in megabytes; 0: no limit.",
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="All tokens together; 0: no limit."
    )
    jobs = models.PositiveIntegerField(null=True, blank=True, help_text="Jobs that are not deleted; 0: no limit.")
    concurrent_executions = models.PositiveIntegerField(
        null=True, blank=True, help_text="Executions placed or running at once; 0: no limit."
    )
    backlog = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Unfinished manually started executions of all jobs together; 0: no limit.",
    )
    job_backlog = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Unfinished manually started executions of each job; 0: no limit.",
    )
    job_dependents = models.PositiveIntegerField(
        null=True, blank=True, help_text="Dependents of each job; 0: no limit."
    )

    class Meta:
        # scan_ready_executions: whether any owner has such a limit.
        indexes = [
            models.Index(fields=["owner"], name="quota_of_executions", condition=Q(concurrent_executions__gt=0)),
        ]

    def __str__(self) -> str:
        return f"quota of {self.owner_id}"

    def clean(self) -> None:
        most = limits.MAX_REQUESTS_PER_MINUTE
        if self.requests_per_minute is not None and self.requests_per_minute > most:
            raise ValidationError({"requests_per_minute": f"Use at most {most}, or 0 for no limit."})


class FullOwner(models.Model):
    """An owner whose storage was full at the last check; only the beginning of each of their logs is stored."""

    owner_id = models.IntegerField(primary_key=True)
    checked_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"no storage left for {self.owner_id}"
