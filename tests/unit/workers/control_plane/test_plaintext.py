"""Files of a run are sent to other machines unencrypted only if the worker's machine allows it."""

from __future__ import annotations

import io

import pytest

from jobs.domain.errors import StorageUnavailable
from jobs.domain.worker_protocol import StoredOutput
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.workers.control_plane.test_rest_control_plane import (
    DATA,
    EXECUTION,
    FENCE,
    REGISTRATION,
    WORKER,
    execution,
    plane,
    refusals,
    server,
    work,
)
from workers.control_plane.rest import RestControlPlane

__all__ = ["plane", "refusals", "server"]


def test_files_are_sent_unencrypted_only_if_allowed(
    server: RecordingServer, plane: RestControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reaches this server, but is not a loopback address.
    elsewhere = server.url.replace("127.0.0.1", "0.0.0.0")  # noqa: S104 - nothing listens on all interfaces
    program = {"sha256": "0" * 64, "size": 2, "url": f"{elsewhere}/program?signature=secret"}
    server.answer("POST", f"{WORKER}/claim", work(execution(server, program=program)))
    server.answer("GET", "/program?signature=secret", DATA)
    upload = server.upload("/store")
    server.answer("POST", f"{EXECUTION}/outputs", upload | {"url": f"{elsewhere}/store"}, status=201)
    server.answer("PUT", "/store", b"")
    plane.poll_for_work(REGISTRATION, [], wait_seconds=5)
    monkeypatch.setenv("PUNCTUAL_ALLOW_PLAINTEXT", "redis")
    with pytest.raises(StorageUnavailable, match="PUNCTUAL_ALLOW_PLAINTEXT=s3") as refused:
        b"".join(plane.read_artifact("0" * 64))
    assert "secret" not in str(refused.value)
    with pytest.raises(StorageUnavailable, match="PUNCTUAL_ALLOW_PLAINTEXT=s3"):
        plane.store_output(FENCE, StoredOutput("a", 2, "0" * 64), io.BytesIO(DATA))
    assert {request.method for request in server.requests} == {"POST"}
    monkeypatch.setenv("PUNCTUAL_ALLOW_PLAINTEXT", "redis, s3")
    assert b"".join(plane.read_artifact("0" * 64)) == DATA
    plane.store_output(FENCE, StoredOutput("a", 2, "0" * 64), io.BytesIO(DATA))
    assert server.requests[-1].method == "PUT"
