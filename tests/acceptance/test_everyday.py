"""Everyday use of the command line, and everyday mistakes, on a running stack."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from punctual_client.client import Client
from tests.acceptance.test_cli import ROOT, Script, environment_of, punctual
from tests.support.stack import Stack
from tests.support.waiting import wait_for

NEVER = ("--cron", "0 0 1 1 *")
EXPIRED = "expired-token-of-a-test"
MAKE_EXPIRED = f"""
from datetime import UTC, datetime
from django.contrib.auth.models import User
from jobs.access.tokens import store_token
store_token(owner=User.objects.first(), name="old", secret="{EXPIRED}", expires_at=datetime(2020, 1, 1, tzinfo=UTC))
"""


def test_the_lines_of_python_in_the_readme_submit_and_wait(stack: Stack) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=environment_of(stack), capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("succeeded 30 days, ")


def test_wait_prints_the_execution_in_the_requested_format(stack: Stack, script: Script) -> None:
    ended = punctual(stack, "submit", script("echo noise; exit 3"), "--wait", "-o", "yaml", check=False)
    assert ended.returncode == 3
    execution = yaml.safe_load(ended.stdout)
    assert (execution["status"], execution["exit_code"]) == ("failed", 3)
    shown = json.loads(punctual(stack, "show", execution["id"], "-o", "json").stdout)
    attempts, events = shown.pop("attempts"), shown.pop("events")
    assert shown == execution
    assert ([each["exit_code"] for each in attempts], events) == ([3], [])
    (listed,) = json.loads(punctual(stack, "dlq", "--job", execution["job_id"], "-o", "json").stdout)
    assert listed["id"] == execution["id"]
    assert punctual(stack, "dlq", "dismiss", execution["id"]).stdout == ""


def test_a_job_is_paused_resumed_and_caught_up(stack: Stack, script: Script) -> None:
    job_id = json.loads(punctual(stack, "submit", script("true"), "--every", "1d", "-o", "json").stdout)["id"]
    punctual(stack, "pause", job_id, "--note", "moving house")
    shown = json.loads(punctual(stack, "show", job_id, "-o", "json").stdout)
    assert (shown["status"], shown["paused_note"]) == ("paused", "moving house")
    assert "Next run" in punctual(stack, "resume", job_id).stderr

    asked = json.loads(punctual(stack, "backfill", job_id, "--from", "3d", "-o", "json").stdout)
    with Client(stack.url, stack.token) as client:
        wait_for(lambda: client.backfills(job_id)[0].ended_at is not None, "it is caught up")
    (made,) = json.loads(punctual(stack, "backfill", job_id, "-o", "json").stdout)
    assert made["created_count"] == asked[0]["expected_count"] > 0
    punctual(stack, "delete", job_id, "--yes")


@pytest.mark.parametrize("words", [["logs", "-f"], ["submit", "--wait"]], ids=["logs", "submit"])
def test_ctrl_c_shows_how_to_continue_and_how_to_cancel(stack: Stack, script: Script, words: list[str]) -> None:
    program = script("echo up; sleep 300")
    command = [*words, str(program)]
    with Client(stack.url, stack.token) as client:
        if words[0] == "logs":
            job_id = punctual(stack, "submit", program, *NEVER).stdout.strip()
            execution_id = punctual(stack, "run", job_id).stdout.strip()
            wait_for(lambda: client.execution(execution_id).status == "running", "it runs")
            command = [*words, execution_id]
        watching = subprocess.Popen(
            [sys.executable, "-m", "punctual_cli", *command],
            cwd=ROOT, env=environment_of(stack), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert watching.stdout is not None
            assert watching.stdout.readline() == "up\n"
            watching.send_signal(signal.SIGINT)
            _, said = watching.communicate(timeout=30)
        finally:
            watching.kill()
            watching.wait(timeout=10)
        assert watching.returncode == 130
        last = said.splitlines()[-1]
        follow, cancel = re.findall(r"punctual (logs -f \S+|cancel --execution \S+)", last)
        # What is shown may be a second old.
        wait_for(lambda: client.execution(follow.split()[-1]).status == "running", "it runs on", seconds=5)
        punctual(stack, *cancel.split())
        assert client.wait(follow.split()[-1], timeout_seconds=60).status == "cancelled"


def test_an_expired_token_is_one_line(stack: Stack) -> None:
    stack.command("stack", "manage", "shell", "-c", MAKE_EXPIRED)
    refused = punctual(stack, "jobs", check=False, PUNCTUAL_TOKEN=EXPIRED)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (3, "", 1)
    assert "expired" in refused.stderr


def test_a_full_disk_leaves_no_half_of_an_output(stack: Stack, script: Script, tmp_path: Path) -> None:
    program = script("echo noise; head -c 1000000 /dev/zero >out/big; echo small >out/a")
    execution = json.loads(punctual(stack, "submit", program, "--wait", "-o", "json").stdout)
    command = f'{sys.executable} -m punctual_cli outputs get {execution["id"]} -d "$1"'
    # A mount of its own: the disk of the machine is left alone.
    ended = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
         f'mount -t tmpfs -o size=256k none "$1" && {{ {command}; echo "code $?"; ls -A "$1"; }}', "sh", str(tmp_path)],
        cwd=ROOT, env=environment_of(stack), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.stdout.splitlines() == [str(tmp_path / "a"), "code 1", "a"]
    assert ended.stderr.count("\n") == 1
    assert "No space left on device" in ended.stderr
    for words in (["show"], ["logs"], ["logs", "-f"], ["outputs", "list"]):
        with Path("/dev/full").open("w") as full:
            shown = punctual(stack, *words, execution["id"], check=False, stdout=full)
        assert (words, shown.returncode, shown.stderr.count("\n")) == (words, 1, 1)


def test_an_unreachable_server_is_distinguished_from_a_foreign_one(stack: Stack) -> None:
    gone = punctual(stack, "jobs", check=False, PUNCTUAL_URL="http://127.0.0.1:1")
    assert (gone.returncode, gone.stdout, gone.stderr.count("\n")) == (3, "", 1)
    assert "is it up?" in gone.stderr
    other = punctual(stack, "jobs", check=False, PUNCTUAL_URL=f"http://127.0.0.1:{stack.flower_port}")
    assert (other.returncode, other.stdout, other.stderr.count("\n")) == (4, "", 1)
    assert "is the address right?" in other.stderr


def test_imported_periodic_task_runs_in_a_sandbox_and_reports_missing_celery(stack: Stack, tmp_path: Path) -> None:
    fixture, name = tmp_path / "beat.json", f"periodic-{tmp_path.name}"
    task = {"name": name, "task": "shop.t", "interval": 1, "enabled": True}
    fixture.write_text(json.dumps([
        {"model": "django_celery_beat.intervalschedule", "pk": 1, "fields": {"every": 90, "period": "days"}},
        {"model": "django_celery_beat.periodictask", "pk": 1, "fields": task},
    ]))  # fmt: skip
    (tmp_path / "broker").write_text("memory://")
    punctual(stack, "secrets", "set", name, "--file", tmp_path / "broker")
    punctual(stack, "import", "celery-beat", fixture, "--secret", name, "--no-network", "--yes")
    ended = punctual(stack, "run", name, "--wait", check=False)
    installed = any(Path(folder, "celery").exists() for folder in ("/usr/bin", "/usr/local/bin"))
    assert ended.returncode == (0 if installed else 127), ended.stderr
    assert ("install it where sandboxes see it" in ended.stdout) is not installed


def test_the_doctor_finds_the_stack_well(stack: Stack) -> None:
    # As a person who started it: by what it left in its directory.
    ended = punctual(
        stack, "doctor", "-o", "json", PUNCTUAL_URL="", PUNCTUAL_TOKEN="", XDG_CONFIG_HOME=os.devnull, check=False
    )
    found = json.loads(ended.stdout)
    assert [each for each in found if each["verdict"] == "failed"] == []
    assert ended.returncode == 0
    looked_at = {each["check"] for each in found}
    assert looked_at >= {"config", "server", "clock", "token", "beat", "worker", "queue", "disk"}
