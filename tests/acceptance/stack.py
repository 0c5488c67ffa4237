"""A stack as `./punctual up --detach` makes it, for tests: its API, its processes, and what it leaves behind."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import psutil

from scheduler_project.embedded.config import StackConfig
from scheduler_project.embedded.control import Supervisor
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.ports import free_ports
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
TERMINAL = {"succeeded", "failed", "timed_out", "cancelled", "missed", "skipped"}
START_SECONDS = 180
PORTS = free_ports()  # none of them twice in this process


@dataclass
class Stack:
    var: Path
    web_port: int = field(default_factory=lambda: next(PORTS))
    flower_port: int = field(default_factory=lambda: next(PORTS))
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PUNCTUAL_VAR": str(self.var),
            "PUNCTUAL_WEB_PORT": str(self.web_port),
            "PUNCTUAL_FLOWER_PORT": str(self.flower_port),
            **self.settings,
        }

    def command(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A stack command, in an environment without the test suite's own engines."""
        own = ("PUNCTUAL_", "DATABASE_", "REDIS_", "S3_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        ended = subprocess.run(
            [sys.executable, "-m", "scheduler_project.embedded", *words],
            cwd=ROOT,
            env={**inherited, **self.environment},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert ended.returncode == 0 or not check, f"{words}: {ended.stdout}\n{ended.stderr}"
        return ended

    @property
    def credentials(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.var / "credentials.json").read_text())
        return found

    @property
    def url(self) -> str:
        return self.credentials["url"]

    @property
    def token(self) -> str:
        return self.credentials["api_token"]

    @cached_property
    def api(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.url.rstrip('/')}/api/v1",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=20,
        )

    def submit(self, **body: Any) -> dict[str, Any]:
        answer = self.api.post("/jobs", json=body)
        assert answer.status_code == 201, answer.text
        job: dict[str, Any] = answer.json()
        return job

    def upload(self, data: bytes) -> str:
        """The id of an artifact of these bytes."""
        announced = self.api.post("/artifacts", json={"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)})
        artifact = announced.raise_for_status().json()
        if artifact["upload"]:
            httpx.put(artifact["upload"]["url"], content=data, headers=artifact["upload"]["headers"]).raise_for_status()
            self.api.post(f"/artifacts/{artifact['id']}/complete").raise_for_status()
        return str(artifact["id"])

    def wait_for_progress(self, job: dict[str, Any]) -> dict[str, Any]:
        """What the job's only execution says of how far it is, while it runs."""

        def said() -> dict[str, Any] | None:
            return next((e["progress"] for e in self.executions(job) if e["status"] == "running"), None)

        progress = wait_for(said, f"{job['name']} tells how far it is")
        assert progress is not None
        return progress

    def executions(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """All of a job's executions, oldest first."""
        found: list[dict[str, Any]] = []
        address = f"/executions?job_id={job['id']}&limit=500"
        while address:
            page = self.api.get(address).raise_for_status().json()
            found += page["results"]
            address = (page["next"] or "").removeprefix("/api/v1")
        return found[::-1]

    def wait_for_end(self, job: dict[str, Any], *, seconds: float = 60) -> dict[str, Any]:
        """The job's only execution, once it has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.executions(job)
            return found[0] if found and found[0]["status"] in TERMINAL else None

        execution = wait_for(ended, f"{job['name']} ended", seconds=seconds)
        assert execution is not None
        return execution

    def log(self, execution: dict[str, Any], **query: Any) -> str:
        return self.api.get(f"/executions/{execution['id']}/logs", params=query).raise_for_status().text

    def processes(self) -> list[psutil.Process]:
        """Everything that runs with this stack's directory in its environment or its command line."""
        found = []
        for process in psutil.process_iter():
            try:
                words = [*process.cmdline(), *process.environ().values()]
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if process.pid != os.getpid() and any(str(self.var) in word for word in words):
                found.append(process)
        return found

    @cached_property
    def supervisor(self) -> Supervisor:
        layout = Layout.from_environment(self.environment)
        config = StackConfig.read(layout.config)
        assert config is not None
        return Supervisor(layout, config)

    def process(self, name: str) -> psutil.Process:
        """The process that the supervisor runs under this name."""
        for state in self.supervisor.states():
            if state.name == name and state.is_running:
                return psutil.Process(state.pid)
        raise AssertionError(f"{name} is not running")
