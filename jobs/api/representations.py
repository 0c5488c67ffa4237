"""What the API answers with; output only, read from rows as the views select them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.api.rendering import QuickRows
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
from jobs.querysets.job_status import JobStatus
from jobs.recurrence import Kind, describe
from jobs.services.artifacts import Announced
from jobs.services.progress import progress_of
from jobs.services.schedules import KIND_FIELDS, recurrence_of
from jobs.states import State

if TYPE_CHECKING:
    from jobs.api.shown_jobs import ShownJob


class ScheduleOutput(QuickRows, serializers.ModelSerializer[Schedule]):
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
        """Null for one in quarantine: what cannot be computed cannot be told either."""
        return None if schedule.quarantined_at else describe(recurrence_of(schedule))

    def to_representation(self, instance: Schedule) -> dict[str, Any]:
        """In the words in which it was written: one of cron, every_seconds, delay_seconds, at, solar."""
        shown: dict[str, Any] = super().to_representation(instance)
        kind, written = Kind(instance.kind), instance.expression
        value: str | float = float(written) if kind in (Kind.EVERY, Kind.DELAY) else written
        if kind is Kind.AT:
            value = written.replace("+00:00", "Z")
        return {"id": shown.pop("id"), KIND_FIELDS[kind]: value, **shown}


class DependencyOutput(serializers.ModelSerializer[Dependency]):
    job = serializers.UUIDField(source="upstream_id")

    class Meta:
        model = Dependency
        fields = ["job", "condition"]
        read_only_fields = fields


class RequirementsOutput(QuickRows, serializers.Serializer[Any]):
    cpu = serializers.FloatField()
    memory_mb = serializers.IntegerField()
    disk_mb = serializers.IntegerField()
    capabilities = serializers.ListField(child=serializers.CharField())
    resources = serializers.DictField(child=serializers.IntegerField())


class InputOutput(serializers.Serializer[Any]):
    path = serializers.CharField()
    artifact = serializers.UUIDField()


class SecretGrantOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    env = serializers.CharField(allow_null=True)
    file = serializers.CharField(allow_null=True)


class JobOutput(QuickRows, serializers.ModelSerializer[Job]):
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
    def get_dependencies(self, job: ShownJob) -> list[dict[str, str]]:
        return job.own_dependencies

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_stdin_artifact(self, job: ShownJob) -> str | None:
        return next((each["artifact"] for each in job.given_inputs if each["path"] is None), None)

    @extend_schema_field(InputOutput(many=True))
    def get_inputs(self, job: ShownJob) -> list[dict[str, str | None]]:
        files = [each for each in job.given_inputs if each["path"] is not None]
        return sorted(files, key=lambda each: each["path"] or "")

    @extend_schema_field(SecretGrantOutput(many=True))
    def get_secrets(self, job: ShownJob) -> list[dict[str, str | None]]:
        """By name: what is in them is in no answer."""
        return sorted(job.granted_secrets, key=lambda each: (each["name"], each["env"] or "", each["file"] or ""))


class SavedJobOutput(JobOutput):
    """A job, and what its owner should know about its schedules."""

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


class ExecutionOutput(QuickRows, serializers.ModelSerializer[Execution]):
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
        said = progress_of(execution)
        return None if said is None else ProgressOutput(said).data


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
        return _artifact_status(artifact)


class AnnouncedOutput(serializers.Serializer[Announced]):
    """An artifact and, until its bytes are stored, the request that stores them."""

    id = serializers.UUIDField(source="artifact.id")
    status = serializers.SerializerMethodField()
    sha256 = serializers.CharField(source="artifact.sha256")
    size = serializers.IntegerField(source="artifact.size")
    upload = UploadOutput(allow_null=True)

    def get_status(self, announced: Announced) -> str:
        return _artifact_status(announced.artifact)


class UsageOutput(serializers.Serializer[dict[str, object]]):
    runs = serializers.IntegerField()
    taken = serializers.IntegerField(help_text="Messages that it took since it registered.")
    load = serializers.FloatField(help_text="Of its machine, over a minute.")
    memory_available_mb = serializers.IntegerField(help_text="Of its machine.")
    at = serializers.DateTimeField()


class WorkerOutput(serializers.ModelSerializer[Worker]):
    resources = serializers.DictField(child=serializers.IntegerField())
    details = serializers.DictField(help_text="What it found on its machine: versions, cgroups, network.")
    usage = UsageOutput(allow_null=True)

    class Meta:
        model = Worker
        fields = [
            "id", "name", "pool", "host", "status", "incarnation", "lease_until", "capabilities", "slots", "cpu",
            "memory_mb", "disk_mb", "resources", "transport", "refusal", "usage", "details", "registered_at",
        ]  # fmt: skip
        read_only_fields = fields


class QueueOutput(serializers.ModelSerializer[Queue]):
    class Meta:
        model = Queue
        fields = ["id", "name", "pool", "priority", "max_concurrency", "aging_seconds", "paused", "created_at"]
        read_only_fields = fields


def _artifact_status(artifact: Artifact) -> str:
    return "stored" if artifact.verified_at else "announced"
