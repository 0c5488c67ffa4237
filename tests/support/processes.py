"""Web, beat and a worker on the test's database, behind a proxy that can fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from jobs.access.tokens import generate_secret, store_token
from jobs.models import Queue, Worker
from scheduler_project.localstack.applications import list_application_processes
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import iter_free_ports
from tests.support.factories import make_user
from tests.support.postgres_proxy import PostgresProxy
from tests.support.stack import ROOT
from tests.support.waiting import wait_for

PROCESSES = ("web", "beat", "worker")
STOP_SECONDS = 30
ANSWER_SECONDS = 30


@dataclass(frozen=True)
class Processes:
    directory: Path
    web_port: int
    secret: str

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        url = f"http://127.0.0.1:{self.web_port}/api/v1/{path}"
        headers = {"Authorization": f"Bearer {self.secret}"}
        return httpx.post(url, json=body, headers=headers, timeout=ANSWER_SECONDS)

    def submit(self, name: str, **other: Any) -> bool:
        body = {"name": name, "runtime": "bash", "script": "true", **other}
        try:
            return self.post("jobs", body).status_code == 201
        except httpx.HTTPError:
            return False


@contextmanager
def started(proxy: PostgresProxy, directory: Path, **settings: str) -> Iterator[Processes]:
    layout = Layout(directory, web_port=next(iter_free_ports()))
    environment = {
        **os.environ,
        "DATABASE_URL": proxy.url,
        "PYTHONPATH": str(ROOT),
        "PUNCTUAL_WORKER_NAME": "only",
        "PUNCTUAL_WORKER_STATE_DIR": str(directory / "worker"),
        "PUNCTUAL_WORKER_DRAIN_SECONDS": "0",
        **settings,
    }
    Queue.objects.get_or_create(name="default")
    secret = generate_secret()
    store_token(owner=make_user(), name="test", secret=secret)
    processes = Processes(directory, layout.web_port, secret)
    with ExitStack() as ends:
        for spec in list_application_processes(layout, environment):
            if spec.name in PROCESSES:
                with (directory / f"{spec.name}.log").open("wb") as output:
                    process = subprocess.Popen(spec.argv, cwd=ROOT, env=environment, stdout=output, stderr=output)
                ends.callback(end, process)
        wait_for(lambda: Worker.objects.filter(status="online").exists(), "the worker is there")
        wait_for(lambda: processes.submit("first"), "web answers")
        yield processes


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
        raise
