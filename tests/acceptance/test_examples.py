"""Every example runs, with the very commands of its section in examples/README.md."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from punctual_client.client import Client
from punctual_client.resources.executions import Execution
from tests.acceptance.test_cli import ROOT, environment_of
from tests.support.stack import Stack
from tests.support.waiting import wait_for

EXAMPLES = ROOT / "examples"
SECTION = re.compile(r"^## (\d)\. .*$", re.MULTILINE)


def commands_of(number: int) -> list[str]:
    """The blocks of shell in a section of the README, as they are printed there."""
    pieces = SECTION.split((EXAMPLES / "README.md").read_text())
    section = dict(zip(pieces[1::2], pieces[2::2], strict=True))[str(number)]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The examples somewhere else, so that what they compile and fetch is not left in the real checkout."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("primes/primes"))
    # What the commands of the README call is the wrapper; it finds its own checkout through the link.
    (tmp_path / "punctual").symlink_to(ROOT / "punctual")
    return tmp_path


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url, stack.token) as opened:
        yield opened


def run_block(stack: Stack, checkout: Path, block: str) -> str:
    shell = ["bash", "-e", "-u", "-c", block + "\nset +e; declare -p | sed -n 's/^declare -- /variable /p' >variables"]
    ended = subprocess.run(
        shell, cwd=checkout, env=environment_of(stack), capture_output=True, text=True, timeout=150, check=False
    )
    assert ended.returncode == 0, f"ended with {ended.returncode}: {ended.stdout}\n{ended.stderr}"
    return ended.stdout


def variable(checkout: Path, name: str) -> str:
    found = re.search(rf'^variable {name}="(.*)"$', (checkout / "variables").read_text(), re.MULTILINE)
    assert found, f"The commands set no variable {name}."
    return found[1]


def only_execution(client: Client, job_id: str) -> Execution:
    wait_for(lambda: bool(client.executions(job_id=job_id)), f"the job {job_id} has an execution")
    (execution,) = client.executions(job_id=job_id)
    return client.wait(execution.id, timeout_seconds=60)


def log_of(client: Client, execution: Execution, attempt: int | None = None) -> str:
    with client.logs(execution.id, attempt=attempt) as pieces:
        return b"".join(pieces).decode()


def test_the_shell_script_runs_now_and_has_its_next_times(stack: Stack, checkout: Path) -> None:
    printed = run_block(stack, checkout, commands_of(1)[0])
    assert printed.count(":00Z") == 5
    assert re.search(r"^/work +\d+ KB +\d+% used$", printed, re.MULTILINE)
    assert printed.endswith("All file systems are below the limit.\n")


def test_the_report_leaves_its_files_and_its_result(stack: Stack, checkout: Path, client: Client) -> None:
    run_block(stack, checkout, commands_of(2)[0])
    assert "<h1>Best: " in (checkout / "sales/report.html").read_text()
    with (checkout / "sales/report.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    result = json.loads((checkout / "sales/result.json").read_text())
    assert len(rows) == result["days"] == 30
    assert round(sum(float(row["total"]) for row in rows), 2) == result["total"]
    assert client.execution(variable(checkout, "execution")).raw["result"] == result


def test_the_steps_run_one_after_another(stack: Stack, checkout: Path, client: Client) -> None:
    run_block(stack, checkout, commands_of(3)[0])
    steps = [only_execution(client, variable(checkout, name)) for name in ("extract", "transform", "load")]
    assert [step.status for step in steps] == ["succeeded"] * 3
    assert len({step.raw["run_id"] for step in steps}) == 1
    for before, after in pairwise(steps):
        assert before.ended_at is not None
        assert after.started_at is not None
        assert before.ended_at <= after.started_at
    assert "transformed 1000 readings into 100 means" in log_of(client, steps[1])
    assert only_execution(client, variable(checkout, "alert")).status == "skipped"


def test_the_alert_runs_when_the_first_step_fails(stack: Stack, checkout: Path, client: Client) -> None:
    assert "ended with 7\n" in run_block(stack, checkout, commands_of(3)[1])
    alert = only_execution(client, variable(checkout, "alert"))
    assert alert.status == "succeeded"
    assert "please check it" in log_of(client, alert)


def test_the_flaky_job_succeeds_on_retry(stack: Stack, checkout: Path) -> None:
    printed = run_block(stack, checkout, commands_of(4)[0])
    assert "Attempt 1 of execution" in printed
    assert "The service did not answer." in printed
    assert "Attempt 2 of execution" in printed
    assert printed.endswith("The service answered.\n")


def test_the_compiled_program_runs(stack: Stack, checkout: Path) -> None:
    for tool in ("cc", "make"):
        if shutil.which(tool) is None:
            pytest.fail(f"This test compiles a C program and {tool} is missing: install it (Debian: build-essential).")
    assert run_block(stack, checkout, commands_of(5)[0]).endswith("There are 78498 primes below 1000000.\n")
