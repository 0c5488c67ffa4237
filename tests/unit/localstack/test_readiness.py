from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import iter_free_ports
from scheduler_project.localstack.startup.readiness import list_failed_checks, wait_until_web_ready


class Answers(BaseHTTPRequestHandler):
    """Send the scripted responses in turn, then repeat the last."""

    script: list[tuple[int, object]]

    def do_GET(self) -> None:
        status, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.send_response(status if self.path == "/readyz" else 404)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Layout]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Layout(var=tmp_path, web_port=server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()


def alive() -> None:
    """Every process is alive."""


def test_waits_until_every_check_passes(server: Layout) -> None:
    failing = (503, {"status": "failed", "checks": {"beat": "failed"}})
    Answers.script = [failing, failing, (200, {"status": "ok"})]

    wait_until_web_ready(server, alive, seconds=10)

    assert Answers.script == [(200, {"status": "ok"})]


def test_failed_check_is_named_with_its_log(server: Layout) -> None:
    Answers.script = [(503, {"status": "failed", "checks": {"redis": {"status": "failed"}, "database": "ok"}})]

    with pytest.raises(StackError, match="failed checks: redis") as caught:
        wait_until_web_ready(server, alive, seconds=0.5)
    assert caught.value.log == server.log("valkey")


def test_unreachable_web_shows_its_log(tmp_path: Path) -> None:
    layout = Layout(var=tmp_path, web_port=next(iter_free_ports()))

    with pytest.raises(StackError, match="did not answer") as caught:
        wait_until_web_ready(layout, alive, seconds=0.3)
    assert caught.value.log == layout.log("web")


def test_dead_process_ends_the_wait(tmp_path: Path) -> None:
    def dead() -> None:
        raise StackError("beat keeps ending.")

    with pytest.raises(StackError, match="beat keeps ending"):
        wait_until_web_ready(Layout(var=tmp_path, web_port=next(iter_free_ports())), dead, seconds=60)


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({}, []),
        ({"checks": {"a": "ok", "b": True, "c": {"status": "ok"}}}, []),
        ({"checks": {"a": "failed", "b": False, "c": {"status": "down"}, "d": {}}}, ["a", "b", "c", "d"]),
    ],
)
def test_failed_checks(answer: dict[str, object], names: list[str]) -> None:
    assert list_failed_checks(answer) == names
