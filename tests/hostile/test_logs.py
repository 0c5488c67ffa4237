"""Logs of hostile programs: stored byte for byte, without effect on other runs or terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from jobs.domain.worker_protocol import Chunk, Progress
from tests.hostile.cases import LIMITS, MEBIBYTE
from tests.hostile.stage import PROGRAMS, PYTHONS
from tests.support.driving import PATH, execute
from tests.support.waiting import eventually
from workers.run import log_stream
from workers.run.log_stream import LogFlusher, LogStream
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import ExitReason, InputFile, Outcome, Program

SHOW = (
    "import sys; from punctual_cli.output.terminal import write_log_bytes; write_log_bytes([sys.stdin.buffer.read()])"
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(detect_host())
    yield sandbox
    sandbox.close()


class Sink:
    """A control plane that accepts chunks once it is allowed to."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.may_take = threading.Event()

    def send(self, chunks: Sequence[Chunk], progress: Progress | None) -> None:
        assert self.may_take.wait(60)
        self.chunks += chunks

    def bytes_of(self, stream: str) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == stream)


def run_into(sandbox: Sandbox, name: str, log: LogStream, *, output: int) -> Outcome:
    python = next(path for path in PYTHONS if os.path.exists(path))
    with ExitStack() as opened:
        files = tuple(
            InputFile(path, opened.enter_context(open(PROGRAMS / source, "rb")).fileno())
            for path, source in (("program.py", name), ("attack.py", "attack.py"))
        )
        program = Program((python, "-BES", "/work/program.py", "{}"), PATH, files)
        limits = replace(LIMITS, output_bytes=output, wall_seconds=30)
        run = opened.enter_context(sandbox.start(program, limits))
        outcome = run.stream(lambda stream, data: log.write(stream.value, data))
        log.close()
        return outcome


def test_injected_log_is_stored_exactly_and_escaped(sandbox: Sandbox) -> None:
    sink = Sink()
    sink.may_take.set()
    assert run_into(sandbox, "log_injection.py", LogStream(sink.send), output=MEBIBYTE).exit_code == 0
    stored = sink.bytes_of("stdout")
    assert stored.startswith(b"\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m \x9b31m\none\rtwo\nnul\x00nul\n")
    assert sink.bytes_of("stderr") == b"Traceback \x1b[1A\x1b[2K\r\n"
    assert [chunk.sequence for chunk in sink.chunks] == list(range(len(sink.chunks)))
    shown = on_a_terminal(stored)
    assert "\x1b" not in shown
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    for evidence in ("\\x1b[2J", "one\\x0dtwo", "nul\\x00nul", "\\u202e", "\\u2028", "\\x85", "<script>"):
        assert evidence in shown


def test_endless_line_is_split_between_characters(sandbox: Sandbox) -> None:
    sink = Sink()
    sink.may_take.set()
    assert run_into(sandbox, "log_huge_line.py", LogStream(sink.send), output=4 * MEBIBYTE).exit_code == 0
    assert sink.bytes_of("stdout").decode() == "\u20ac" * 700_000
    assert all(chunk.data.decode() for chunk in sink.chunks)


def test_log_flood_does_not_stop_other_runs_or_their_logs(sandbox: Sandbox) -> None:
    flooded, quiet = Sink(), Sink()
    quiet.may_take.set()
    flusher = LogFlusher()
    logs = [LogStream(flooded.send), LogStream(quiet.send)]
    ended: list[Outcome] = []
    cap = 6 * MEBIBYTE
    flood = _in_thread(lambda: ended.append(run_into(sandbox, "output_flood.py", logs[0], output=cap)))
    try:
        assert eventually(lambda: logs[0].pending_bytes >= log_stream.MAX_PENDING_BYTES)
        for _ in range(5):
            assert execute(sandbox, "echo done").stdout == b"done\n"
        logs[1].write("stdout", b"a word\n")
        logs[1].flush()
        assert quiet.bytes_of("stdout") == b"a word\n"
        assert ended == [], "it blocks at its pipe"
        assert logs[0].pending_bytes <= log_stream.MAX_PENDING_BYTES + log_stream.CHUNK_BYTES
    finally:
        flooded.may_take.set()
        flusher.add(logs[0])
        flusher.start()
        flood.join(60)
        flusher.stop()
    (outcome,) = ended
    assert (outcome.reason, outcome.exit_code, outcome.output_truncated) == (ExitReason.EXIT, 0, True)
    assert len(flooded.bytes_of("stdout")) == cap


def _in_thread(act: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def on_a_terminal(data: bytes) -> str:
    ours, theirs = pty.openpty()
    with tempfile.TemporaryFile() as given:
        given.write(data)
        given.seek(0)
        showing = subprocess.Popen([sys.executable, "-c", SHOW], stdin=given, stdout=theirs)
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # the other end of the terminal is closed
        while piece := os.read(ours, 4096):
            seen += piece
    os.close(ours)
    assert showing.wait(30) == 0
    return seen.decode().replace("\r\n", "\n")
