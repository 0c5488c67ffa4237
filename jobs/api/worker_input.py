"""What workers send over HTTP. A worker is trusted with its runs, not with our memory, our database or our readers."""

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

from jobs import conf
from jobs.api.fields import (
    BoundedDictField,
    BoundedListField,
    IdField,
    InstantField,
    NameField,
    NumberField,
    OneOfField,
    PatternField,
    Sha256Field,
    StrictSerializer,
    TextField,
    TruthField,
    WholeNumberField,
)
from jobs.planning import MAX_AMOUNT, is_resource_name
from jobs.protocol import (
    MAX_CHUNKS_SAID,
    MAX_PROGRESS_LENGTH,
    MAX_REFUSAL_LENGTH,
    Chunk,
    Hold,
    Offer,
    Progress,
    Report,
    StoredOutput,
    Usage,
)
from jobs.states import Reason
from jobs.storable import MAX_PATH_LENGTH, is_safe_path, is_storable_json, plain_line, printed_excess

LARGEST_INTEGER = 2**31 - 1
LARGEST_BIG_INTEGER = 2**63 - 1
MAX_HELD = 10_000
MAX_CHUNK_BYTES = 64 * 1024
MAX_DESCRIPTION_BYTES = 64 * 1024
# Numbers grow when they are written out: what was a small file may be a longer text by now.
MAX_RESULT_TEXT_BYTES = 8 * conf.MAX_RESULT_BYTES
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
# Only the control plane itself can say the others.
SAYABLE = (
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
class DescriptionField(serializers.DictField):
    """An object of the worker's own making, which is shown and never acted upon."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value: dict[str, Any] = super().to_internal_value(data)
        if not is_storable_json(value, MAX_DESCRIPTION_BYTES) or printed_excess(value) > MAX_DESCRIPTION_BYTES:
            raise serializers.ValidationError(f"Give plain JSON of at most {MAX_DESCRIPTION_BYTES} bytes.")
        return value


@extend_schema_field(OpenApiTypes.ANY)
class ResultField(serializers.JSONField):
    def to_internal_value(self, data: Any) -> Any:
        if not is_storable_json(data, MAX_RESULT_TEXT_BYTES) or printed_excess(data) > conf.MAX_RESULT_BYTES:
            raise serializers.ValidationError(f"Give plain JSON of at most {conf.MAX_RESULT_BYTES} bytes.")
        return data


@extend_schema_field(OpenApiTypes.BYTE)
class BytesField(serializers.Field[bytes, str, str, bytes]):
    """Bytes as base64: what programs write is no text."""

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


class OfferInput(StrictSerializer):
    name = NameField(
        max_length=120, help_text="Unique; who comes back under its name takes its former life's work away."
    )
    instance = IdField(help_text="Kept by the worker: tells its restart from another of its name.")
    pool = PatternField(
        r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z",
        sentence="A pool is named by letters, digits and . _ -, at most 63 of them, the first a letter or a digit.",
        default="default",
        help_text="Whose queues it serves.",
    )
    host = NameField(max_length=255)
    slots = WholeNumberField(min_value=1, max_value=MAX_HELD)
    cpu = NumberField(min_value=0.01, max_value=100_000)
    memory_mb = WholeNumberField(min_value=1, max_value=LARGEST_INTEGER)
    disk_mb = WholeNumberField(min_value=0, max_value=LARGEST_INTEGER)
    capabilities = BoundedListField(child=NameField(max_length=63), default=list, max_length=64)
    details = DescriptionField(default=dict)
    resources = BoundedDictField(
        max_length=conf.MAX_RESOURCES,
        too_many=f"Give at most {conf.MAX_RESOURCES} of them.",
        child=WholeNumberField(min_value=0, max_value=MAX_AMOUNT),
        default=dict,
    )
    refusal = TextField(
        default="",
        allow_blank=True,
        max_length=MAX_REFUSAL_LENGTH,
        help_text="Why it takes no work: it is seen, and given nothing. Empty: it takes work.",
    )

    def validate_resources(self, value: dict[str, int]) -> dict[str, int]:
        for name in value:
            if not is_resource_name(name):
                raise serializers.ValidationError(
                    f"'{name[:100]}' is not the name of a resource; write one such as gpu."
                )
        return value


def offer_of(values: Mapping[str, Any]) -> Offer:
    return Offer(**values)


class HeldInput(StrictSerializer):
    execution_id = IdField()
    attempt = WholeNumberField(min_value=1, max_value=LARGEST_INTEGER)


class StandingInput(StrictSerializer):
    incarnation = WholeNumberField(min_value=1, max_value=LARGEST_BIG_INTEGER, help_text="From the registration.")


class UsageInput(StrictSerializer):
    """What it and its machine use now, for people to read."""

    runs = WholeNumberField(min_value=0, max_value=LARGEST_INTEGER)
    taken = WholeNumberField(
        min_value=0, max_value=LARGEST_BIG_INTEGER, help_text="Grows while it asks for work; else it is suspect."
    )
    load = NumberField(min_value=0, max_value=1e6)
    memory_available_mb = WholeNumberField(min_value=0, max_value=LARGEST_INTEGER)


class HeartbeatInput(StandingInput):
    held = BoundedListField(
        child=HeldInput(), max_length=MAX_HELD, help_text="Every attempt that it holds: what it leaves out is lost."
    )
    usage = UsageInput(default=None, allow_null=True)


def usage_of(values: Mapping[str, Any]) -> Usage | None:
    return None if values["usage"] is None else Usage(**values["usage"])


class ClaimInput(StandingInput):
    held = BoundedListField(child=HeldInput(), max_length=MAX_HELD, help_text="Every attempt that it knows of.")
    wait_seconds = NumberField(
        default=conf.CLAIM_WAIT_SECONDS,
        min_value=0,
        max_value=conf.CLAIM_WAIT_SECONDS,
        help_text="The answer comes as soon as there is something, and after this long at the latest.",
    )


def held_of(values: Mapping[str, Any]) -> list[tuple[UUID, int]]:
    return [(each["execution_id"], each["attempt"]) for each in values["held"]]


class HoldInput(StrictSerializer):
    """Who says that it holds the attempt: every write of a worker passes this fence."""

    worker_id = IdField()
    incarnation = WholeNumberField(min_value=1, max_value=LARGEST_BIG_INTEGER)
    attempt = WholeNumberField(min_value=1, max_value=LARGEST_INTEGER)


def hold_of(execution_id: UUID, values: Mapping[str, Any]) -> Hold:
    return Hold(execution_id, values["attempt"], values["worker_id"], values["incarnation"])


class StartInput(HoldInput):
    receipt = DescriptionField(default=dict, help_text="What the sandbox is made of.")


class ChunkInput(StrictSerializer):
    sequence = WholeNumberField(
        min_value=0, max_value=LARGEST_INTEGER, help_text="Counts the attempt's chunks; one that is sent again is one."
    )
    stream = OneOfField(["stdout", "stderr"])
    at = InstantField()
    base64 = BytesField(help_text="Its bytes.")

    def validate_at(self, value: datetime) -> datetime:
        if not EARLIEST <= value < LATEST:
            raise serializers.ValidationError("The worker's clock is wrong by decades.")
        return value


class ProgressInput(StrictSerializer):
    percent = NumberField(allow_null=True, min_value=0, max_value=100, help_text="Null: it does not know.")
    message = TextField(allow_blank=True, max_length=MAX_PROGRESS_LENGTH)


class LogInput(HoldInput):
    progress = ProgressInput(default=None, allow_null=True, help_text="How far the run says it is, if it has said so.")
    chunks = BoundedListField(child=ChunkInput(), max_length=MAX_CHUNKS_SAID)

    def validate_chunks(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({chunk["sequence"] for chunk in value}) < len(value):
            raise serializers.ValidationError("Two chunks have the same sequence.")
        return value


def chunks_of(values: Mapping[str, Any]) -> list[Chunk]:
    return [Chunk(c["sequence"], c["stream"], c["at"], c["base64"]) for c in values["chunks"]]


def progress_of(values: Mapping[str, Any]) -> Progress | None:
    said = values["progress"]
    return None if said is None else Progress(said["percent"], plain_line(said["message"], MAX_PROGRESS_LENGTH))


class FileInput(StrictSerializer):
    size = WholeNumberField(min_value=0, max_value=conf.MAX_OUTPUT_BYTES)
    sha256 = Sha256Field()


class OutputInput(HoldInput, FileInput):
    """A file that the run left, which is about to be uploaded."""


class NamedFileInput(FileInput):
    name = TextField(max_length=MAX_PATH_LENGTH, help_text="Its path below the directory of outputs.")

    def validate_name(self, value: str) -> str:
        if not is_safe_path(value):
            raise serializers.ValidationError("This is not an acceptable path of an output.")
        return value


class CompleteInput(HoldInput):
    reason = OneOfField([reason.value for reason in SAYABLE], help_text="`exit` with exit_code 0: success.")
    exit_code = WholeNumberField(default=None, allow_null=True, min_value=-(2**31), max_value=LARGEST_INTEGER)
    signal = WholeNumberField(default=None, allow_null=True, min_value=1, max_value=128)
    error = TextField(default="", allow_blank=True, max_length=MAX_DESCRIPTION_BYTES)
    result = ResultField(default=None, allow_null=True)
    outputs = BoundedListField(child=NamedFileInput(), default=list, max_length=conf.MAX_OUTPUT_FILES)
    cpu_seconds = NumberField(default=None, allow_null=True, min_value=0, max_value=1e12)
    peak_memory_bytes = WholeNumberField(default=None, allow_null=True, min_value=0, max_value=LARGEST_BIG_INTEGER)
    peak_disk_bytes = WholeNumberField(default=None, allow_null=True, min_value=0, max_value=LARGEST_BIG_INTEGER)
    log_truncated = TruthField(default=False)

    def validate_outputs(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({file["name"] for file in value}) < len(value):
            raise serializers.ValidationError("Two outputs have the same name.")
        if sum(file["size"] for file in value) > conf.MAX_OUTPUT_BYTES:
            raise serializers.ValidationError(f"Outputs may have {conf.MAX_OUTPUT_BYTES} bytes in all.")
        return value


def report_of(values: Mapping[str, Any]) -> Report:
    return Report(
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
