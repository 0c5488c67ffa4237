"""`./punctual worker` as a process with only an address and a token."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_for

# Only the worker that is started here has it.
ELSEWHERE = {"resources": {"elsewhere": 1}}
# What no other process on this machine sleeps for.
NAP = "86413.5"


@dataclass
class RemoteWorker:
    stack: Stack
    token: str
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            str(ROOT / "punctual"),
            *("worker", "--url", self.stack.url, "--name", "elsewhere", "--resource", "elsewhere=2"),
            *("--slots", "2", "--state-dir", str(self.directory / "state"), "--drain-seconds", "30"),
        ]
        environment = {"PATH": os.environ["PATH"], "PUNCTUAL_WORKER_TOKEN": self.token}
        joined = self.log().count("has joined") + 1
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        wait_for(lambda: self.log().count("has joined") == joined, "it has joined")

    @property
    def log_file(self) -> Path:
        return self.directory / "worker.log"

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def row(self) -> dict[str, Any]:
        rows = self.stack.api.get("/workers?limit=500").raise_for_status().json()["results"]
        return next((row for row in rows if row["name"] == "elsewhere"), {})

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@pytest.fixture
def remote(stack: Stack, tmp_path: Path) -> Iterator[RemoteWorker]:
    made = subprocess.run(
        [sys.executable, "manage.py", "create_worker_token", "--owner", "admin", "--name", "elsewhere", "--any-pool"],
        cwd=ROOT,
        env=stack.process("web").environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    worker = RemoteWorker(stack, made.stdout.strip(), tmp_path)
    yield worker
    if worker.process is not None and worker.process.poll() is None:
        worker.end(signal.SIGKILL)


def wait_until_running(stack: Stack, job: dict[str, Any], *, attempt: int = 1) -> dict[str, Any]:
    def running() -> bool:
        (execution,) = stack.executions(job)
        return bool(execution["status"] == "running" and execution["attempt"] == attempt)

    wait_for(running, f"{job['name']} runs")
    return stack.executions(job)[0]


def naps() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline() == ["sleep", NAP]:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_worker_elsewhere_runs_is_cancelled_dies_comes_back_and_drains(stack: Stack, remote: RemoteWorker) -> None:
    remote.start()
    assert remote.process is not None
    environment = psutil.Process(remote.process.pid).environ()
    assert not [name for name in environment if name.startswith(("DATABASE", "REDIS", "S3_", "AWS"))]

    # It runs, and what it wrote and left is where everybody's is.
    script = "cat - data/file; echo world >&2; cp data/file out/file.txt; echo '{\"n\": 1}' > out/result.json"
    script += "; echo 50 half >&3; sleep 2; echo 100% done >&3"
    given = {"stdin": "hello\n", "inputs": [{"path": "data/file", "artifact": stack.upload(b"data\n")}]}
    job = stack.submit(name="elsewhere", runtime="bash", script=script, requirements=ELSEWHERE, **given)
    assert stack.wait_for_progress(job)["percent"] == 50
    execution = stack.wait_for_end(job)
    assert execution["progress"]["message"] == "done"
    assert (execution["status"], execution["worker_id"]) == ("succeeded", remote.row()["id"])
    assert execution["result"] == {"n": 1}
    assert stack.log(execution, stream="stdout") == "hello\ndata\n"
    files = stack.api.get(f"/executions/{execution['id']}/outputs").json()["results"]
    (file,) = [file for file in files if file["name"] == "file.txt"]
    assert httpx.get(file["url"]).text == "data\n"

    # A cancel reaches it while its question for work waits.
    job = stack.submit(name="cancelled", runtime="bash", script=f"sleep {NAP}", requirements=ELSEWHERE)
    running = wait_until_running(stack, job)
    wait_for(naps, "it sleeps")
    began = time.monotonic()
    stack.api.put(f"/executions/{running['id']}/cancel", json={}).raise_for_status()
    assert stack.wait_for_end(job)["status"] == "cancelled"
    assert time.monotonic() - began < 5
    assert naps() == []

    # It dies, its program with it, and what it held moves on as soon as it is back.
    script = f'echo attempt $PUNCTUAL_ATTEMPT; [ "$PUNCTUAL_ATTEMPT" -gt 1 ] || sleep {NAP}'
    job = stack.submit(name="killed", runtime="bash", script=script, requirements=ELSEWHERE)
    wait_until_running(stack, job)
    wait_for(naps, "it sleeps")
    remote.end(signal.SIGKILL)
    wait_for(lambda: not naps(), "its program died with it", seconds=10)
    remote.start()
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["attempt"], remote.row()["incarnation"]) == ("succeeded", 2, 2)
    assert stack.log(execution) == "attempt 2\n"

    # It drains: what runs ends well, and it says goodbye.
    job = stack.submit(name="drained", runtime="bash", script="sleep 2; echo done", requirements=ELSEWHERE)
    wait_until_running(stack, job)
    assert remote.end(signal.SIGTERM) == 0
    (execution,) = stack.executions(job)
    assert (execution["status"], execution["attempt"]) == ("succeeded", 1)
    assert (remote.row()["status"], "Traceback" in remote.log()) == ("offline", False)
