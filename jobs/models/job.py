"""Jobs, their immutable versions, and the edges between them.

A version never changes: an execution runs the version that was in force when it fired.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Upper

from jobs.domain.choices import Condition, Delivery, Overlap, labelled
from jobs.models.ids import new_id

# Codename of the permission that an owner's runs need for network access.
USE_NETWORK = "use_network"


class JobState(models.TextChoices):
    ACTIVE = "active"
    PAUSED = "paused"  # its schedules do not fire; executions that already fired continue
    CANCELLED = "cancelled"


class Job(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs")
    team = models.ForeignKey(
        "jobs.Team", on_delete=models.SET_NULL, null=True, related_name="jobs", db_index=False, help_text="Empty: none."
    )
    name = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=JobState.choices, default=JobState.ACTIVE)
    paused_at = models.DateTimeField(null=True, editable=False)
    paused_note = models.CharField(max_length=1000, default="", blank=True)
    current_version = models.OneToOneField(
        "jobs.JobVersion", on_delete=models.PROTECT, null=True, related_name="current_of", db_index=False
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        permissions = [(USE_NETWORK, "Can give the runs of own jobs a network")]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=JobState.values), name="job_state_known"),
            models.CheckConstraint(
                condition=Q(state=JobState.PAUSED, paused_at__isnull=False)
                | (~Q(state=JobState.PAUSED) & Q(paused_at__isnull=True)),
                name="job_paused_at_iff_paused",
            ),
            models.CheckConstraint(
                condition=Q(deleted_at__isnull=True) | Q(state=JobState.CANCELLED), name="job_deleted_is_cancelled"
            ),
        ]
        indexes = [
            # GET /jobs: of all owners, of one owner, by name, and the deleted ones.
            models.Index(fields=["-id"], name="job_live", condition=Q(deleted_at__isnull=True)),
            models.Index(fields=["owner", "-id"], name="job_live_by_owner", condition=Q(deleted_at__isnull=True)),
            models.Index(fields=["name", "id"], name="job_by_name", condition=Q(deleted_at__isnull=True)),
            models.Index(
                fields=["owner", "name", "id"], name="job_by_owner_and_name", condition=Q(deleted_at__isnull=True)
            ),
            # Jobs of a team; also to clear them when the team is deleted.
            models.Index(fields=["team", "-id"], name="job_by_team", condition=Q(team__isnull=False)),
            models.Index(
                fields=["team", "name", "id"],
                name="job_by_team_and_name",
                condition=Q(team__isnull=False, deleted_at__isnull=True),
            ),
            models.Index(fields=["-id"], name="job_deleted", condition=Q(deleted_at__isnull=False)),
            # GET /jobs?status=paused
            models.Index(
                fields=["state", "-id"], name="job_stopped", condition=~Q(state="active") & Q(deleted_at__isnull=True)
            ),
            # GET /jobs?search=
            GinIndex(F("owner"), OpClass(Upper("name"), name="gin_trgm_ops"), name="job_search"),
        ]

    def __str__(self) -> str:
        return self.name


class JobVersion(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    artifact = models.ForeignKey("jobs.Artifact", on_delete=models.PROTECT, related_name="versions")
    runtime = models.CharField(max_length=32)
    args = models.JSONField(default=list)
    env = models.JSONField(default=dict)
    queue = models.ForeignKey("jobs.Queue", on_delete=models.PROTECT, related_name="versions", db_index=False)
    priority = models.SmallIntegerField()
    cpu = models.FloatField()
    memory_mb = models.PositiveIntegerField()
    disk_mb = models.PositiveIntegerField()
    capabilities = ArrayField(models.CharField(max_length=63), default=list)
    resources = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    timeout_seconds = models.FloatField()
    deadline_seconds = models.FloatField(null=True, help_text="For all attempts together, counted from firing.")
    retry = models.JSONField(default=dict)
    max_concurrency = models.PositiveIntegerField(null=True, default=1)
    overlap = models.CharField(
        max_length=16,
        choices=labelled(Overlap),
        default=Overlap.QUEUE.value,
    )
    delivery = models.CharField(
        max_length=16,
        choices=labelled(Delivery),
        default=Delivery.AT_LEAST_ONCE.value,
    )
    network = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="job_version_number_once"),
            models.CheckConstraint(condition=Q(priority__gte=0, priority__lte=9), name="job_version_priority_0_9"),
            models.CheckConstraint(condition=Q(cpu__gt=0, memory_mb__gt=0), name="job_version_needs_something"),
            models.CheckConstraint(condition=Q(timeout_seconds__gt=0), name="job_version_timeout_positive"),
            models.CheckConstraint(
                condition=Q(deadline_seconds__isnull=True) | Q(deadline_seconds__gt=0),
                name="job_version_deadline_positive",
            ),
            models.CheckConstraint(
                condition=Q(max_concurrency__isnull=True) | Q(max_concurrency__gte=1), name="job_version_limit_positive"
            ),
            models.CheckConstraint(
                condition=Q(overlap__in=[choice.value for choice in Overlap]), name="job_version_overlap_known"
            ),
            models.CheckConstraint(
                condition=Q(delivery__in=[choice.value for choice in Delivery]), name="job_version_delivery_known"
            ),
        ]
        indexes = [
            # GET /jobs?queue= and ?priority=
            models.Index(fields=["queue", "-job"], name="job_version_by_queue"),
            models.Index(fields=["priority", "-job"], name="job_version_by_priority"),
        ]

    def __str__(self) -> str:
        return f"version {self.number}"


class VersionInput(models.Model):
    """An input file of a version's program; without a path, its standard input."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    version = models.ForeignKey(JobVersion, on_delete=models.CASCADE, related_name="inputs", db_index=False)
    path = models.CharField(max_length=1024, null=True)  # noqa: DJ001 - null: standard input
    artifact = models.ForeignKey("jobs.Artifact", on_delete=models.PROTECT, related_name="inputs")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "path"], name="version_input_path_once", nulls_distinct=False),
        ]

    def __str__(self) -> str:
        return self.path or "standard input"


class Dependency(models.Model):
    """`job` runs after `upstream` in the same run if the outcome of `upstream` meets the condition."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependencies", db_index=False)
    upstream = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="dependents", db_index=False)
    condition = models.CharField(
        max_length=16,
        choices=labelled(Condition),
        default=Condition.SUCCESS.value,
    )

    class Meta:
        verbose_name_plural = "dependencies"
        constraints = [
            models.UniqueConstraint(fields=["job", "upstream"], name="dependency_edge_once"),
            models.CheckConstraint(condition=~Q(job=models.F("upstream")), name="dependency_not_on_itself"),
            models.CheckConstraint(
                condition=Q(condition__in=[choice.value for choice in Condition]), name="dependency_condition_known"
            ),
        ]
        # resolve_dependents and resolve_fan_outs: what depends on a job, page by page.
        indexes = [models.Index(fields=["upstream", "job"], name="dependency_by_upstream")]

    def __str__(self) -> str:
        return f"{self.job_id} after {self.upstream_id} ({self.condition})"
