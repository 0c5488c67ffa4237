"""A client that does not read is dropped, even though its kernel acknowledges packets."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from scheduler_project.web.sockets import set_user_timeout

SECONDS = 1.0


def test_client_that_does_not_read_is_dropped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        assert set_user_timeout(SECONDS) >= 1
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(30)
            began = time.monotonic()
            with pytest.raises(TimeoutError) as dropped:
                accepted.sendall(b"x" * 50_000_000)
            assert dropped.value.errno is not None, "dropped by the kernel, not by our own timeout"
            assert SECONDS / 2 < time.monotonic() - began < 20


def test_finding_listening_sockets_leaves_no_file_open(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX) as server, (tmp_path / "file").open("wb"):
        server.bind(str(tmp_path / "socket"))
        server.listen()
        try:
            before = os.listdir("/proc/self/fd")
            for _ in range(3):
                set_user_timeout(SECONDS)
            assert os.listdir("/proc/self/fd") == before
        finally:
            os.close(reading)
            os.close(writing)
