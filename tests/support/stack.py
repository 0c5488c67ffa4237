"""A local stack for tests, as `./punctual up --detach` starts it: its API, its processes and its files."""

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

from scheduler_project.localstack.config import StackConfig
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import iter_free_ports
from scheduler_project.localstack.supervisor.client import SupervisorClient
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
TERMINAL = {"succeeded", "failed", "timed_out", "cancelled", "missed", "skipped"}
START_SECONDS = 180
PORTS = iter_free_ports()  # none of them twice in this process


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
        """Run a stack command in an environment without the engines of the test suite."""
        own = ("PUNCTUAL_", "DATABASE_", "REDIS_", "S3_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        ended = subprocess.run(
            [sys.executable, "-m", "scheduler_project.localstack", *words],
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
        """Upload bytes as an artifact and return its id."""
        announced = self.api.post("/artifacts", json={"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)})
        artifact = announced.raise_for_status().json()
        if artifact["upload"]:
            httpx.put(artifact["upload"]["url"], content=data, headers=artifact["upload"]["headers"]).raise_for_status()
            self.api.post(f"/artifacts/{artifact['id']}/complete").raise_for_status()
        return str(artifact["id"])

    def wait_for_progress(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the progress that the job's only execution reports while it runs."""

        def said() -> dict[str, Any] | None:
            return next((e["progress"] for e in self.executions(job) if e["status"] == "running"), None)

        progress = wait_for(said, f"{job['name']} tells how far it is")
        assert progress is not None
        return progress

    def executions(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """Return all executions of a job, oldest first."""
        found: list[dict[str, Any]] = []
        address = f"/executions?job_id={job['id']}&limit=500"
        while address:
            page = self.api.get(address).raise_for_status().json()
            found += page["results"]
            address = (page["next"] or "").removeprefix("/api/v1")
        return found[::-1]

    def wait_for_end(self, job: dict[str, Any], *, seconds: float = 60) -> dict[str, Any]:
        """Return the job's only execution once it has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.executions(job)
            return found[0] if found and found[0]["status"] in TERMINAL else None

        execution = wait_for(ended, f"{job['name']} ended", seconds=seconds)
        assert execution is not None
        return execution

    def log(self, execution: dict[str, Any], **query: Any) -> str:
        return self.api.get(f"/executions/{execution['id']}/logs", params=query).raise_for_status().text

    def processes(self) -> list[psutil.Process]:
        """Return all processes with this stack's directory in their environment or command line."""
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
    def supervisor(self) -> SupervisorClient:
        layout = Layout.from_environment(self.environment)
        config = StackConfig.read(layout.config)
        assert config is not None
        return SupervisorClient(layout, config)

    def process(self, name: str) -> psutil.Process:
        """Return the supervised process of this name; one that has just started counts after some seconds."""

        def running() -> list[psutil.Process]:
            states = [state for state in self.supervisor.states() if state.name == name and state.is_running]
            return [psutil.Process(state.pid) for state in states if psutil.pid_exists(state.pid)]

        return wait_for(running, f"{name} is running")[0]
