"""How the values of the protocol are written in JSON, as a worker sends and reads them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from jobs.protocol import Chunk, Claimed, Hold, Order, Registration
from workers.errors import ControlPlaneUnavailable


@contextmanager
def understood() -> Iterator[None]:
    """An answer that is not what was agreed is no answer."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ControlPlaneUnavailable(
            f"The control plane's answer cannot be understood ({type(error).__name__}: {error})."
        ) from error


def pairs(held: Iterable[tuple[UUID, int]]) -> list[dict[str, object]]:
    return [{"execution_id": str(execution_id), "attempt": attempt} for execution_id, attempt in held]


def chunk(chunk: Chunk) -> dict[str, object]:
    return {
        "sequence": chunk.sequence,
        "stream": chunk.stream,
        "at": chunk.logged_at.isoformat(),
        "base64": base64.b64encode(chunk.data).decode(),
    }


def orders(answer: dict[str, Any]) -> list[Order]:
    with understood():
        return [
            Order(UUID(each["execution_id"]), int(each["attempt"]), bool(each["cancelled"]))
            for each in answer["orders"]
        ]


def hold(registration: Registration, each: dict[str, Any]) -> Hold:
    return Hold(UUID(each["execution_id"]), int(each["attempt"]), registration.worker_id, registration.incarnation)


def claimed(each: dict[str, Any]) -> Claimed:
    return Claimed(
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
        inputs=json.dumps([_input(file) for file in each["inputs"]]),
        # A control plane that knows nothing of them grants none.
        network=bool(each.get("network", False)),
        secrets=json.dumps([_secret(secret) for secret in each.get("secrets", [])]),
    )


def _input(file: dict[str, Any]) -> dict[str, object]:
    path = file["path"]
    return {"path": None if path is None else str(path), "sha256": str(file["sha256"]), "size": int(file["size"])}


def _secret(secret: dict[str, Any]) -> dict[str, object]:
    env, path = secret["env"], secret["path"]
    return {
        "name": str(secret["name"]),
        "value": str(secret["value"]),
        "env": None if env is None else str(env),
        "path": None if path is None else str(path),
        "problem": str(secret["problem"]),
    }


def addresses(each: dict[str, Any]) -> dict[str, str]:
    """Where the program and the files of a claim lie, by their hash."""
    return {str(file["sha256"]): str(file["url"]) for file in (each["program"], *each["inputs"])}
