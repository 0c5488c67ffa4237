"""JSON encoding of the values of the worker protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from jobs.domain.worker_protocol import AttemptFence, Chunk, ClaimedRun, Registration, StopOrder
from workers.errors import ControlPlaneUnavailable


@contextmanager
def decoding_response() -> Iterator[None]:
    """Turn a malformed response into ControlPlaneUnavailable."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ControlPlaneUnavailable(
            f"The control plane's answer cannot be understood ({type(error).__name__}: {error})."
        ) from error


def encode_attempts(held: Iterable[tuple[UUID, int]]) -> list[dict[str, object]]:
    return [{"execution_id": str(execution_id), "attempt": attempt} for execution_id, attempt in held]


def encode_chunk(chunk: Chunk) -> dict[str, object]:
    return {
        "sequence": chunk.sequence,
        "stream": chunk.stream,
        "at": chunk.logged_at.isoformat(),
        "base64": base64.b64encode(chunk.data).decode(),
    }


def decode_orders(answer: dict[str, Any]) -> list[StopOrder]:
    with decoding_response():
        return [
            StopOrder(UUID(each["execution_id"]), int(each["attempt"]), bool(each["cancelled"]))
            for each in answer["orders"]
        ]


def decode_fence(registration: Registration, each: dict[str, Any]) -> AttemptFence:
    return AttemptFence(
        UUID(each["execution_id"]), int(each["attempt"]), registration.worker_id, registration.incarnation
    )


def decode_claim(each: dict[str, Any]) -> ClaimedRun:
    return ClaimedRun(
        execution_id=UUID(each["execution_id"]),
        attempt=int(each["attempt"]),
        job_id=UUID(each["job_id"]),
        job_name=str(each["job_name"]),
        run_id=UUID(each["run_id"]),
        scheduled_for=datetime.fromisoformat(each["scheduled_for"]),
        claimed_at=datetime.fromisoformat(each["claimed_at"]),
        runtime=str(each["runtime"]),
        args=json.dumps(each["args"]),
        env=json.dumps(each["env"]),
        cpu=float(each["cpu"]),
        memory_mb=int(each["memory_mb"]),
        disk_mb=int(each["disk_mb"]),
        timeout_seconds=float(each["timeout_seconds"]),
        sha256=str(each["program"]["sha256"]),
        size=int(each["program"]["size"]),
        seconds_left=None if each["seconds_left"] is None else float(each["seconds_left"]),
        inputs=json.dumps([_decode_input(file) for file in each["inputs"]]),
        network=bool(each["network"]),
        secrets=json.dumps([_decode_secret(secret) for secret in each["secrets"]]),
    )


def _decode_input(file: dict[str, Any]) -> dict[str, object]:
    path = file["path"]
    return {"path": None if path is None else str(path), "sha256": str(file["sha256"]), "size": int(file["size"])}


def _decode_secret(secret: dict[str, Any]) -> dict[str, object]:
    env, path = secret["env"], secret["path"]
    return {
        "name": str(secret["name"]),
        "value": str(secret["value"]),
        "env": None if env is None else str(env),
        "path": None if path is None else str(path),
        "problem": str(secret["problem"]),
    }


def decode_artifact_urls(each: dict[str, Any]) -> dict[str, str]:
    """Return the download URLs of a claim's program and input files, by SHA-256."""
    return {str(file["sha256"]): str(file["url"]) for file in (each["program"], *each["inputs"])}
