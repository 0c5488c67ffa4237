"""Request bodies of the worker protocol.

A worker is trusted with its runs, but not with the control plane's memory, database or readers: everything is bounded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.api.framework.fields import (
    MAX_INT32,
    BoundedDictField,
    BoundedListField,
    InstantField,
    NameField,
    NumberField,
    OneOfField,
    PatternField,
    Sha256Field,
    StrictBooleanField,
    StrictIntegerField,
    StrictSerializer,
    StrictUUIDField,
    TextField,
)
from jobs.domain import limits
from jobs.domain.packing import MAX_AMOUNT, is_resource_name
from jobs.domain.states import Reason
from jobs.domain.text_validation import (
    MAX_PATH_LENGTH,
    count_expanded_characters,
    is_safe_path,
    is_storable_json,
    to_single_line,
)
from jobs.domain.worker_protocol import (
    MAX_CHUNKS_PER_APPEND,
    MAX_PROGRESS_LENGTH,
    MAX_REFUSAL_LENGTH,
    AttemptFence,
    Chunk,
    Progress,
    RunReport,
    StoredOutput,
    WorkerOffer,
    WorkerUsage,
)

MAX_INT64 = 2**63 - 1
MAX_HELD_ATTEMPTS = 10_000
MAX_CHUNK_BYTES = 64 * 1024
MAX_DESCRIPTION_BYTES = 64 * 1024
# JSON may grow when re-encoded, such as 1e300 written out.
MAX_RESULT_TEXT_BYTES = 8 * limits.MAX_RESULT_BYTES
EARLIEST_LOG_TIME, LATEST_LOG_TIME = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
# The other reasons are set by the control plane only.
REPORTABLE_REASONS = (
    Reason.EXIT,
    Reason.TIMEOUT,
    Reason.OUT_OF_MEMORY,
    Reason.CANCELLED,
    Reason.RELEASED,
    Reason.ARTIFACT_MISMATCH,
    Reason.ARTIFACT_UNAVAILABLE,
    Reason.SANDBOX_ERROR,
    Reason.SECRET_UNAVAILABLE,
)


@extend_schema_field(OpenApiTypes.OBJECT)
class UntrustedObjectField(serializers.DictField):
    """An arbitrary object from the worker, for display only."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        if (
            not is_storable_json(value, MAX_DESCRIPTION_BYTES)
            or count_expanded_characters(value) > MAX_DESCRIPTION_BYTES
        ):
            raise serializers.ValidationError(f"Give plain JSON of at most {MAX_DESCRIPTION_BYTES} bytes.")
        return value


@extend_schema_field(OpenApiTypes.ANY)
class ResultField(serializers.JSONField):
    def to_internal_value(self, data: Any) -> Any:
        if (
            not is_storable_json(data, MAX_RESULT_TEXT_BYTES)
            or count_expanded_characters(data) > limits.MAX_RESULT_BYTES
        ):
            raise serializers.ValidationError(f"Give plain JSON of at most {limits.MAX_RESULT_BYTES} bytes.")
        return data


@extend_schema_field(OpenApiTypes.BYTE)
class BytesField(serializers.Field[bytes, str, str, bytes]):
    """Bytes as base64, because programs may write any bytes."""

    def to_internal_value(self, data: str) -> bytes:
        if not isinstance(data, str) or not data.isascii():
            raise serializers.ValidationError("Give the bytes as base64.")
        try:
            value = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise serializers.ValidationError("Give the bytes as base64.") from None
        if len(value) > MAX_CHUNK_BYTES:
            raise serializers.ValidationError(f"Give at most {MAX_CHUNK_BYTES} bytes in a chunk.")
        return value


class RegistrationInput(StrictSerializer):
    name = NameField(max_length=120, help_text="Unique name. Registering it again fences the previous incarnation.")
    instance = StrictUUIDField(
        help_text="Id that the worker keeps across restarts, to distinguish a restart from another worker of this name."
    )
    pool = PatternField(
        r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z",
        message="A pool is named by letters, digits and . _ -, at most 63 of them, the first a letter or a digit.",
        default="default",
        help_text="Pool to join; the worker serves the queues of this pool.",
    )
    host = NameField(max_length=255)
    slots = StrictIntegerField(min_value=1, max_value=MAX_HELD_ATTEMPTS)
    cpu = NumberField(min_value=0.01, max_value=100_000)
    memory_mb = StrictIntegerField(min_value=1, max_value=MAX_INT32)
    disk_mb = StrictIntegerField(min_value=0, max_value=MAX_INT32)
    capabilities = BoundedListField(child=NameField(max_length=63), default=list, max_length=64)
    details = UntrustedObjectField(default=dict)
    resources = BoundedDictField(
        max_length=limits.MAX_RESOURCES,
        too_many=f"Give at most {limits.MAX_RESOURCES} resources.",
        child=StrictIntegerField(min_value=0, max_value=MAX_AMOUNT),
        default=dict,
    )
    refusal = TextField(
        default="",
        allow_blank=True,
        max_length=MAX_REFUSAL_LENGTH,
        help_text="Why the worker accepts no work; it is listed but gets none. Empty: it accepts work.",
    )

    def validate_resources(self, value: dict[str, int]) -> dict[str, int]:
        for name in value:
            if not is_resource_name(name):
                raise serializers.ValidationError(
                    f"'{name[:100]}' is not the name of a resource; write one such as gpu."
                )
        return value


def build_offer(values: Mapping[str, Any]) -> WorkerOffer:
    return WorkerOffer(**values)


class HeldInput(StrictSerializer):
    execution_id = StrictUUIDField()
    attempt = StrictIntegerField(min_value=1, max_value=MAX_INT32)


class IncarnationInput(StrictSerializer):
    incarnation = StrictIntegerField(min_value=1, max_value=MAX_INT64, help_text="Incarnation from the registration.")


class UsageInput(StrictSerializer):
    """Current load of the worker and its machine, for display."""

    runs = StrictIntegerField(min_value=0, max_value=MAX_INT32)
    taken = StrictIntegerField(
        min_value=0,
        max_value=MAX_INT64,
        help_text="Messages taken since registration. A worker whose count stops growing becomes suspect.",
    )
    load = NumberField(min_value=0, max_value=1e6)
    memory_available_mb = StrictIntegerField(min_value=0, max_value=MAX_INT32)


class HeartbeatInput(IncarnationInput):
    held = BoundedListField(
        child=HeldInput(),
        max_length=MAX_HELD_ATTEMPTS,
        help_text="Every attempt the worker holds. An attempt that is missing here counts as lost.",
    )
    usage = UsageInput(default=None, allow_null=True)
    lease_seconds = NumberField(
        default=0.0,
        min_value=0,
        max_value=limits.MAX_LEASE_SECONDS,
        help_text="Lease length the worker currently assumes; the response may change it.",
    )


def build_usage(values: Mapping[str, Any]) -> WorkerUsage | None:
    return None if values["usage"] is None else WorkerUsage(**values["usage"])


class ClaimInput(IncarnationInput):
    held = BoundedListField(
        child=HeldInput(), max_length=MAX_HELD_ATTEMPTS, help_text="Every attempt the worker knows of."
    )
    wait_seconds = NumberField(
        default=limits.CLAIM_WAIT_SECONDS,
        min_value=0,
        max_value=limits.CLAIM_WAIT_SECONDS,
        help_text="Maximum time to wait for work, in seconds.",
    )


def parse_held(values: Mapping[str, Any]) -> list[tuple[UUID, int]]:
    return [(each["execution_id"], each["attempt"]) for each in values["held"]]


class FenceInput(StrictSerializer):
    """The attempt fence: every write of a worker names the attempt it holds, and fails if it no longer does."""

    worker_id = StrictUUIDField()
    incarnation = StrictIntegerField(min_value=1, max_value=MAX_INT64)
    attempt = StrictIntegerField(min_value=1, max_value=MAX_INT32)


def build_fence(execution_id: UUID, values: Mapping[str, Any]) -> AttemptFence:
    return AttemptFence(execution_id, values["attempt"], values["worker_id"], values["incarnation"])


class StartInput(FenceInput):
    receipt = UntrustedObjectField(default=dict, help_text="Versions and settings of the sandbox.")


class ChunkInput(StrictSerializer):
    sequence = StrictIntegerField(
        min_value=0, max_value=MAX_INT32, help_text="Number of the chunk within the attempt; makes retries idempotent."
    )
    stream = OneOfField(["stdout", "stderr"])
    at = InstantField()
    base64 = BytesField(help_text="Content, base64-encoded.")

    def validate_at(self, value: datetime) -> datetime:
        if not EARLIEST_LOG_TIME <= value < LATEST_LOG_TIME:
            raise serializers.ValidationError("The worker's clock is wrong by decades.")
        return value


class ProgressInput(StrictSerializer):
    percent = NumberField(allow_null=True, min_value=0, max_value=100, help_text="Percentage done; null if unknown.")
    message = TextField(allow_blank=True, max_length=MAX_PROGRESS_LENGTH)


class LogInput(FenceInput):
    progress = ProgressInput(default=None, allow_null=True, help_text="Progress that the program reported.")
    chunks = BoundedListField(child=ChunkInput(), max_length=MAX_CHUNKS_PER_APPEND)

    def validate_chunks(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({chunk["sequence"] for chunk in value}) < len(value):
            raise serializers.ValidationError("Two chunks have the same sequence.")
        return value


def build_chunks(values: Mapping[str, Any]) -> list[Chunk]:
    return [Chunk(c["sequence"], c["stream"], c["at"], c["base64"]) for c in values["chunks"]]


def build_progress(values: Mapping[str, Any]) -> Progress | None:
    given = values["progress"]
    return None if given is None else Progress(given["percent"], to_single_line(given["message"], MAX_PROGRESS_LENGTH))


class FileInput(StrictSerializer):
    size = StrictIntegerField(min_value=0, max_value=limits.MAX_OUTPUT_BYTES)
    sha256 = Sha256Field()


class OutputInput(FenceInput, FileInput):
    """An output file that is about to be uploaded."""


class NamedFileInput(FileInput):
    name = TextField(max_length=MAX_PATH_LENGTH, help_text="Path below the output directory.")

    def validate_name(self, value: str) -> str:
        if not is_safe_path(value):
            raise serializers.ValidationError("This is not a valid path of an output.")
        return value


class CompleteInput(FenceInput):
    reason = OneOfField(
        [reason.value for reason in REPORTABLE_REASONS],
        help_text="How the run ended; `exit` with exit_code 0 is success.",
    )
    exit_code = StrictIntegerField(default=None, allow_null=True, min_value=-(2**31), max_value=MAX_INT32)
    signal = StrictIntegerField(default=None, allow_null=True, min_value=1, max_value=128)
    error = TextField(default="", allow_blank=True, max_length=MAX_DESCRIPTION_BYTES)
    result = ResultField(default=None, allow_null=True)
    outputs = BoundedListField(child=NamedFileInput(), default=list, max_length=limits.MAX_OUTPUT_FILES)
    cpu_seconds = NumberField(default=None, allow_null=True, min_value=0, max_value=1e12)
    peak_memory_bytes = StrictIntegerField(default=None, allow_null=True, min_value=0, max_value=MAX_INT64)
    peak_disk_bytes = StrictIntegerField(default=None, allow_null=True, min_value=0, max_value=MAX_INT64)
    log_truncated = StrictBooleanField(default=False)

    def validate_outputs(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({file["name"] for file in value}) < len(value):
            raise serializers.ValidationError("Two outputs have the same name.")
        if sum(file["size"] for file in value) > limits.MAX_OUTPUT_BYTES:
            raise serializers.ValidationError(f"Outputs may have at most {limits.MAX_OUTPUT_BYTES} bytes in total.")
        return value


def build_report(values: Mapping[str, Any]) -> RunReport:
    return RunReport(
        reason=Reason(values["reason"]),
        exit_code=values["exit_code"],
        signal=values["signal"],
        error=values["error"],
        result=values["result"],
        outputs=[StoredOutput(file["name"], file["size"], file["sha256"]) for file in values["outputs"]],
        cpu_seconds=values["cpu_seconds"],
        peak_memory_bytes=values["peak_memory_bytes"],
        peak_disk_bytes=values["peak_disk_bytes"],
        log_truncated=values["log_truncated"],
    )
