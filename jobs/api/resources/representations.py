"""Output serializers shared by several views; they read rows as the views select them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.api.framework.fast_serializer import FastSerializerMixin
from jobs.definitions.job_status import JobStatus
from jobs.domain.recurrence import Kind, describe_recurrence
from jobs.domain.states import State
from jobs.execution.progress import read_progress
from jobs.models import (
    Artifact,
    Attempt,
    Dependency,
    Execution,
    ExecutionEvent,
    Job,
    Queue,
    Schedule,
    Worker,
)
from jobs.scheduling.schedules import FIELD_OF_KIND, recurrence_of
from jobs.storage.artifacts import AnnouncedArtifact

if TYPE_CHECKING:
    from jobs.api.resources.definitions.job_queryset import JobWithDetails


class ScheduleOutput(FastSerializerMixin, serializers.ModelSerializer[Schedule]):
    in_words = serializers.SerializerMethodField()
    excluded_dates = serializers.ListField(source="written_dates", child=serializers.DateField())
    calendar = serializers.UUIDField(source="calendar_id", allow_null=True)

    class Meta:
        model = Schedule
        fields = [
            "id", "in_words", "timezone", "starts_at", "ends_at", "jitter_seconds", "catch_up",
            "catch_up_window_seconds", "excluded_dates", "calendar", "max_count", "settled_count", "next_instant",
            "quarantined_at", "quarantine_error",
        ]  # fmt: skip
        read_only_fields = fields

    def get_in_words(self, schedule: Schedule) -> str | None:
        """Describe the schedule; null for one in quarantine, whose instants cannot be computed."""
        return None if schedule.quarantined_at else describe_recurrence(recurrence_of(schedule))

    def to_representation(self, instance: Schedule) -> dict[str, Any]:
        """Add the kind field: one of cron, every_seconds, delay_seconds, at, solar."""
        values: dict[str, Any] = super().to_representation(instance)
        kind, expression = Kind(instance.kind), instance.expression
        value: str | float = float(expression) if kind in (Kind.EVERY, Kind.DELAY) else expression
        if kind is Kind.AT:
            value = expression.replace("+00:00", "Z")
        return {"id": values.pop("id"), FIELD_OF_KIND[kind]: value, **values}


class DependencyOutput(serializers.ModelSerializer[Dependency]):
    job = serializers.UUIDField(source="upstream_id")

    class Meta:
        model = Dependency
        fields = ["job", "condition"]
        read_only_fields = fields


class RequirementsOutput(FastSerializerMixin, serializers.Serializer[Any]):
    cpu = serializers.FloatField()
    memory_mb = serializers.IntegerField()
    disk_mb = serializers.IntegerField()
    capabilities = serializers.ListField(child=serializers.CharField())
    resources = serializers.DictField(child=serializers.IntegerField())


class InputFileOutput(serializers.Serializer[Any]):
    path = serializers.CharField()
    artifact = serializers.UUIDField()


class SecretGrantOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    env = serializers.CharField(allow_null=True)
    file = serializers.CharField(allow_null=True)


class JobOutput(FastSerializerMixin, serializers.ModelSerializer[Job]):
    status = serializers.ChoiceField([s.value for s in JobStatus])
    owner = serializers.CharField(source="owner.username")
    team = serializers.SerializerMethodField()
    version = serializers.IntegerField(source="current_version.number")
    runtime = serializers.CharField(source="current_version.runtime")
    artifact = serializers.UUIDField(source="current_version.artifact_id")
    args = serializers.ListField(source="current_version.args", child=serializers.CharField())
    env = serializers.DictField(source="current_version.env", child=serializers.CharField())
    stdin_artifact = serializers.SerializerMethodField()
    inputs = serializers.SerializerMethodField()
    secrets = serializers.SerializerMethodField()
    schedules = ScheduleOutput(many=True, source="live_schedules")
    dependencies = serializers.SerializerMethodField()
    priority = serializers.IntegerField(source="current_version.priority")
    queue = serializers.CharField(source="current_version.queue.name")
    requirements = RequirementsOutput(source="current_version")
    timeout_seconds = serializers.FloatField(source="current_version.timeout_seconds")
    deadline_seconds = serializers.FloatField(source="current_version.deadline_seconds", allow_null=True)
    retry = serializers.JSONField(source="current_version.retry")
    max_concurrency = serializers.IntegerField(source="current_version.max_concurrency", allow_null=True)
    overlap = serializers.CharField(source="current_version.overlap")
    delivery = serializers.CharField(source="current_version.delivery")
    network = serializers.BooleanField(source="current_version.network")
    next_instant = serializers.DateTimeField(allow_null=True)

    class Meta:
        model = Job
        fields = [
            "id", "name", "status", "owner", "team", "version", "runtime", "artifact", "args", "env", "stdin_artifact",
            "inputs", "secrets", "schedules", "dependencies", "priority", "queue", "requirements", "timeout_seconds",
            "deadline_seconds", "retry", "max_concurrency", "overlap", "delivery", "network", "next_instant",
            "paused_at", "paused_note", "created_at", "updated_at", "deleted_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_team(self, job: Job) -> str | None:
        return job.team.name if job.team else None

    @extend_schema_field(DependencyOutput(many=True))
    def get_dependencies(self, job: JobWithDetails) -> list[dict[str, str]]:
        return job.dependency_values

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_stdin_artifact(self, job: JobWithDetails) -> str | None:
        return next((each["artifact"] for each in job.input_values if each["path"] is None), None)

    @extend_schema_field(InputFileOutput(many=True))
    def get_inputs(self, job: JobWithDetails) -> list[dict[str, str | None]]:
        files = [each for each in job.input_values if each["path"] is not None]
        return sorted(files, key=lambda each: each["path"] or "")

    @extend_schema_field(SecretGrantOutput(many=True))
    def get_secrets(self, job: JobWithDetails) -> list[dict[str, str | None]]:
        """Return the grants, sorted by name; values of secrets are in no response."""
        return sorted(job.secret_values, key=lambda each: (each["name"], each["env"] or "", each["file"] or ""))


class SavedJobOutput(JobOutput):
    """A job with warnings about its schedules."""

    warnings = serializers.SerializerMethodField()

    class Meta(JobOutput.Meta):
        fields = [*JobOutput.Meta.fields, "warnings"]
        read_only_fields = fields

    def get_warnings(self, job: Job) -> list[str]:
        warnings: list[str] = self.context["warnings"]
        return warnings


class ProgressOutput(serializers.Serializer[Any]):
    percent = serializers.FloatField(allow_null=True)
    message = serializers.CharField()
    at = serializers.DateTimeField()


class ExecutionOutput(FastSerializerMixin, serializers.ModelSerializer[Execution]):
    job_id = serializers.UUIDField()
    job_name = serializers.CharField(source="job.name")
    status = serializers.ChoiceField([s.value for s in State], source="state")
    worker_id = serializers.UUIDField(allow_null=True)
    pinned_worker_id = serializers.UUIDField(allow_null=True)
    progress = serializers.SerializerMethodField()

    class Meta:
        model = Execution
        fields = [
            "id", "job_id", "job_name", "status", "trigger", "run_id", "scheduled_for", "attempt", "tries_used",
            "worker_id", "pinned_worker_id", "exit_code", "signal", "reason", "result", "progress", "fired_at",
            "ready_at", "placed_at", "claimed_at", "started_at", "ended_at", "retry_at", "cancel_requested_at",
            "deadline_at", "retry_of", "dead_letter",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(ProgressOutput(allow_null=True))
    def get_progress(self, execution: Execution) -> dict[str, object] | None:
        progress = read_progress(execution)
        return None if progress is None else ProgressOutput(progress).data


class AttemptOutput(serializers.ModelSerializer[Attempt]):
    worker_id = serializers.UUIDField()

    class Meta:
        model = Attempt
        fields = [
            "number", "worker_id", "placed_at", "claimed_at", "started_at", "ended_at", "reason", "exit_code", "signal",
            "error", "cpu_seconds", "peak_memory_bytes", "peak_disk_bytes", "log_truncated", "receipt",
        ]  # fmt: skip
        read_only_fields = fields


class EventOutput(serializers.ModelSerializer[ExecutionEvent]):
    class Meta:
        model = ExecutionEvent
        fields = ["id", "created_at", "attempt", "name", "detail"]
        read_only_fields = fields


class InstantOutput(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    local = serializers.CharField()
    note = serializers.CharField(allow_null=True)


class LogChunkOutput(serializers.Serializer[Any]):
    sequence = serializers.IntegerField()
    at = serializers.DateTimeField()
    stream = serializers.CharField()
    text = serializers.CharField()


class FileOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField()
    url = serializers.CharField()


class UploadOutput(serializers.Serializer[Any]):
    url = serializers.CharField()
    method = serializers.CharField()
    headers = serializers.DictField(child=serializers.CharField())


class ArtifactOutput(serializers.ModelSerializer[Artifact]):
    status = serializers.SerializerMethodField()

    class Meta:
        model = Artifact
        fields = ["id", "status", "sha256", "size", "created_at", "verified_at"]
        read_only_fields = fields

    def get_status(self, artifact: Artifact) -> str:
        return _get_artifact_status(artifact)


class ArtifactUploadOutput(serializers.Serializer[AnnouncedArtifact]):
    """An artifact and, until it is stored, the request that uploads it."""

    id = serializers.UUIDField(source="artifact.id")
    status = serializers.SerializerMethodField()
    sha256 = serializers.CharField(source="artifact.sha256")
    size = serializers.IntegerField(source="artifact.size")
    upload = UploadOutput(allow_null=True)

    def get_status(self, announced: AnnouncedArtifact) -> str:
        return _get_artifact_status(announced.artifact)


class WorkerUsageOutput(serializers.Serializer[dict[str, object]]):
    runs = serializers.IntegerField()
    taken = serializers.IntegerField(help_text="Messages taken since registration.")
    load = serializers.FloatField(help_text="Load average of the machine over one minute.")
    memory_available_mb = serializers.IntegerField(help_text="Available memory of the machine.")
    at = serializers.DateTimeField()


class WorkerOutput(serializers.ModelSerializer[Worker]):
    resources = serializers.DictField(child=serializers.IntegerField())
    details = serializers.DictField(help_text="Properties of the machine: versions, cgroups, network.")
    usage = WorkerUsageOutput(allow_null=True)

    class Meta:
        model = Worker
        fields = [
            "id", "name", "pool", "host", "status", "incarnation", "lease_until", "capabilities", "slots", "cpu",
            "memory_mb", "disk_mb", "resources", "transport", "refusal", "usage", "details", "registered_at",
        ]  # fmt: skip
        read_only_fields = fields


class QueueOutput(serializers.ModelSerializer[Queue]):
    team = serializers.CharField(
        source="team.name",
        default=None,
        allow_null=True,
        help_text="Team whose members' jobs the queue accepts; null for all.",
    )

    class Meta:
        model = Queue
        fields = ["id", "name", "pool", "priority", "max_concurrency", "aging_seconds", "paused", "team", "created_at"]
        read_only_fields = fields


def _get_artifact_status(artifact: Artifact) -> str:
    return "stored" if artifact.verified_at else "announced"
