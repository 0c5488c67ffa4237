"""Programs that go into runs and files that come out of them; the bytes live in the object store.

An artifact is named by its content: a row never changes what it points to.
"""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from jobs import conf
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
        db_default=Now(), editable=False, help_text="When somebody last announced, completed or used it."
    )
    doomed_at = models.DateTimeField(
        null=True, editable=False, help_text="Since when it is being collected: its bytes may be gone already."
    )
    verified_at = models.DateTimeField(
        null=True, editable=False, help_text="When the stored bytes were seen to be the announced ones."
    )
    deleted_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="Its bytes are gone; the row stays for versions that nothing runs any more.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "sha256"], name="artifact_once_per_owner"),
            models.CheckConstraint(condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="artifact_sha256_hex"),
            models.CheckConstraint(condition=Q(size__gte=0), name="artifact_size_not_negative"),
        ]
        indexes = [
            # collect_orphans: who else names the same bytes.
            models.Index(fields=["sha256"], name="artifact_by_hash"),
            models.Index(fields=["doomed_at"], name="artifact_doomed", condition=Q(doomed_at__isnull=False)),
            # GET /artifacts; storage_use: what an owner keeps, from the index alone.
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
    # Of its job, which never changes hands: what an owner keeps is summed up by it.
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
        # storage_use
        indexes = [models.Index(fields=["owner"], include=["size"], name="output_bytes_by_owner")]

    def __str__(self) -> str:
        return self.name


class OwnerQuota(models.Model):
    """What one owner may use, where that is not what everybody may; what is empty is as it is for everybody."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="quota")
    storage_mb = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Artifacts, published outputs and archived logs together, in megabytes; 0: without limit.",
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="With all tokens together; 0: without limit."
    )
    jobs = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many there may be that are not deleted; 0: without limit."
    )
    concurrent_executions = models.PositiveIntegerField(
        null=True, blank=True, help_text="How many may be placed or running at once; 0: without limit."
    )

    class Meta:
        # ready_executions: whether anybody has such a limit.
        indexes = [
            models.Index(fields=["owner"], name="quota_of_executions", condition=Q(concurrent_executions__gt=0)),
        ]

    def __str__(self) -> str:
        return f"quota of {self.owner_id}"

    def clean(self) -> None:
        most = conf.MAX_REQUESTS_PER_MINUTE
        if self.requests_per_minute is not None and self.requests_per_minute > most:
            raise ValidationError({"requests_per_minute": f"At most {most}, or 0: without limit."})
