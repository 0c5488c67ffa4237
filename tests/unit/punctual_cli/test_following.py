"""A log is followed over all attempts, completely, until the execution has ended."""

from __future__ import annotations

import time

import pytest

from punctual_cli.following import describe_outcome, exit_code_of, follow_log
from punctual_client.errors import WaitTimeoutError
from punctual_client.resources.executions import Execution
from tests.unit.punctual_cli.server import RecordingServer

PATH = "/api/v1/executions/E"


def execution(status: str, attempt: int = 1, exit_code: int | None = None) -> dict[str, object]:
    return {"id": "E", "job_id": "J", "status": status, "attempt": attempt, "exit_code": exit_code}


def chunks(*pairs: tuple[int, str], ended: bool = False) -> dict[str, object]:
    results = [{"sequence": number, "stream": "stdout", "text": text} for number, text in pairs]
    return {"results": results, "ended": ended}


@pytest.fixture(autouse=True)
def _nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    monkeypatch.setattr("punctual_cli.following.POLL_INTERVAL_SECONDS", 0.001)


def test_the_log_of_every_attempt_comes_once_and_in_order(server: RecordingServer) -> None:
    for found in (execution("ready", 0), execution("running"), execution("succeeded", 3, 0)):
        server.answer("GET", PATH, found)
    first, third = f"{PATH}/logs?format=json&attempt=1", f"{PATH}/logs?format=json&attempt=3"
    server.answer("GET", f"{first}&wait=20", chunks((0, "a"), (1, "b")))
    server.answer("GET", f"{first}&after=1&wait=20", chunks())
    server.answer("GET", f"{first}&after=1", chunks((2, "c"), ended=True))
    server.answer("GET", f"{first}&after=2", chunks(ended=True))
    server.answer("GET", f"{PATH}/logs?format=json&attempt=2", chunks(ended=True))
    server.answer("GET", third, chunks((0, "d"), ended=True))
    server.answer("GET", f"{third}&after=0", chunks(ended=True))

    followed = follow_log(server.client, "E", first_attempt=1, deadline=time.monotonic() + 300)

    assert "".join(chunk.text for chunk in followed) == "abcd"


def test_progress_is_printed_on_a_terminal_when_it_changes(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [{"percent": 12.5, "message": "\x1b[2J"}, {"percent": None, "message": "b"}]
    for progress in (None, words[0], words[0], words[1]):
        server.answer("GET", PATH, execution("running") | {"progress": progress})
    server.answer("GET", PATH, execution("succeeded") | {"progress": words[1]})
    for asked in ("", "&wait=1", "&wait=20"):
        server.answer("GET", f"{PATH}/logs?format=json&attempt=1{asked}", chunks())
    for person in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda there=person: there)
        list(follow_log(server.client, "E", first_attempt=1, deadline=time.monotonic() + 30))
        told = "Progress: 12.5 % \\x1b[2J\nProgress: b\n" if person else ""
        assert capsys.readouterr().err == told


def test_following_ends_at_its_deadline(server: RecordingServer) -> None:
    server.answer("GET", PATH, execution("queued", 0))
    with pytest.raises(WaitTimeoutError, match="still queued"):
        list(follow_log(server.client, "E", first_attempt=1, deadline=time.monotonic()))


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("succeeded", 0, 0),
        ("failed", 7, 7),
        ("failed", None, 1),
        ("failed", -9, 1),
        ("failed", 256, 1),
        ("failed", 0, 1),
        ("timed_out", None, 1),
        ("cancelled", 143, 1),
        ("skipped", None, 1),
    ],
)
def test_waiting_ends_with_the_code_of_the_program(status: str, code: int | None, expected: int) -> None:
    assert exit_code_of(Execution.parse(execution(status, 1, code))) == expected


@pytest.mark.parametrize(("number", "words", "code"), [(11, "signal 11, SIGSEGV", 139), (63, "signal 63", 191)])
def test_a_signal_is_named(number: int, words: str, code: int) -> None:
    ended = Execution.parse({**execution("failed"), "signal": number, "reason": "exit"})
    assert f"(attempt 1, {words})" in describe_outcome(ended)
    assert (ended.exit_description, exit_code_of(ended)) == (f"signal {number}", code)
    late = Execution.parse({**execution("timed_out"), "signal": 9, "reason": "timeout"})
    assert "signal" not in describe_outcome(late)
