"""A new user's first commands: up, status, logs, down."""

from __future__ import annotations

import stat

import httpx

from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.startup.hello_job import run_hello_job
from tests.support.stack import Stack
from tests.support.waiting import wait_for


def test_up_leaves_credentials_for_its_owner_only(stack: Stack) -> None:
    assert set(stack.credentials) == {
        "url",
        "api_token",
        "admin_user",
        "admin_password",
        "flower_url",
        "flower_user",
        "flower_password",
    }
    assert stat.S_IMODE((stack.var / "credentials.json").stat().st_mode) == 0o600


def test_up_ran_a_job_through_the_api(stack: Stack) -> None:
    hello = stack.api.get("/jobs", params={"search": "hello"}).json()["results"][-1]
    execution = stack.wait_for_end(hello)
    assert (execution["status"], execution["exit_code"]) == ("succeeded", 0)
    assert "Hello from Punctual" in stack.log(execution)


def test_every_start_leaves_one_hello_job_and_touches_no_other(stack: Stack) -> None:
    def hellos() -> dict[str, str]:
        """The program of each, the newest first."""
        found = stack.api.get("/jobs", params={"name": "hello"}).json()["results"]
        return {job["id"]: job["artifact"] for job in found}

    stack.api.post("/jobs", json={"name": "hello", "runtime": "bash", "script": "echo mine"}).raise_for_status()
    before = hellos()
    for _ in range(2):
        greeting = run_hello_job(Layout(stack.var, stack.web_port), stack.credentials["api_token"], lambda: None)
        assert greeting.status == "succeeded"
    (own, program), *others = hellos().items()
    assert own not in before
    assert dict(others) == {job: artifact for job, artifact in before.items() if artifact != program}
    assert len(others) < len(before), "the one of the former start is gone"
    assert httpx.get(f"{stack.url}/api/v1", follow_redirects=True).url.path == "/api/v1/docs"


def test_up_reports_a_running_stack(stack: Stack) -> None:
    assert "already running" in stack.command("up", "--detach").stdout


def test_the_stack_is_managed(stack: Stack) -> None:
    made = stack.command("stack", "manage", "create_worker_token", "--owner", "admin", "--pool", "far")
    assert made.stdout.startswith("pun_")
    refused = stack.command("stack", "manage", "create_worker_token", "--owner", "nobody", check=False)
    assert (refused.returncode, refused.stderr) == (1, "CommandError: There is no user called nobody.\n")


def test_web_and_flower_require_credentials(stack: Stack) -> None:
    assert httpx.get(f"{stack.api.base_url}jobs").status_code == 401
    assert httpx.get(stack.credentials["flower_url"]).status_code == 401
    assert httpx.get(f"{stack.url}/admin/", follow_redirects=True).url.path == "/admin/login/"


def test_flower_shows_the_worker(stack: Stack) -> None:
    auth = (stack.credentials["flower_user"], stack.credentials["flower_password"])
    address = stack.credentials["flower_url"].rstrip("/")
    wait_for(lambda: "celery@" in httpx.get(f"{address}/workers", auth=auth).text, "Flower knows the worker")


def test_the_supervisor_restarts_dead_processes(stack: Stack) -> None:
    beat = stack.process("beat")
    beat.kill()
    wait_for(lambda: "RUNNING" in stack.command("stack", "status", check=False).stdout.upper(), "status answers")
    wait_for(lambda: _is_running_anew(stack, "beat", beat.pid), "beat runs again")
    execution = stack.wait_for_end(stack.submit(name="after-beat", runtime="bash", script="echo still here"))
    assert execution["status"] == "succeeded"


def _is_running_anew(stack: Stack, name: str, former: int) -> bool:
    for line in stack.command("stack", "status", check=False).stdout.splitlines():
        words = line.split()
        if words[:2] == [name, "running"]:
            return int(words[2]) != former
    return False
