"""The command line against a running stack: output, exit codes and effects."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from punctual_client.client import Client
from tests.support.stack import Stack
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
LONGEST_COMMAND_SECONDS = 90

Ended = subprocess.CompletedProcess[str]


def environment_of(stack: Stack) -> dict[str, str]:
    return {**os.environ, **stack.environment, "PUNCTUAL_URL": stack.url, "PUNCTUAL_TOKEN": stack.token}


def punctual(
    stack: Stack, *words: str | Path, check: bool = True, stdout: int | IO[str] = subprocess.PIPE, **environment: str
) -> Ended:
    ended = subprocess.run(
        [sys.executable, "-m", "punctual_cli", *map(str, words)],
        cwd=ROOT,
        env=environment_of(stack) | environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LONGEST_COMMAND_SECONDS,
        check=False,
    )
    if check:
        assert ended.returncode == 0, f"{words} ended with {ended.returncode}: {ended.stderr}"
    return ended


Script = Callable[[str], Path]


def test_waiting_shows_the_whole_log_and_succeeds(stack: Stack, script: Script) -> None:
    ended = punctual(stack, "submit", script("for n in $(seq 1 3000); do echo line $n; done"), "--wait")
    assert ended.stdout.splitlines() == [f"line {n}" for n in range(1, 3001)]
    assert "succeeded (attempt 1, exit code 0)" in ended.stderr


def test_waiting_ends_with_the_code_of_the_program(stack: Stack, script: Script) -> None:
    ended = punctual(stack, "submit", script("echo before; exit 37"), "--wait", check=False)
    assert (ended.returncode, ended.stdout) == (37, "before\n")
    assert "failed (attempt 1, exit code 37)" in ended.stderr


def test_waiting_ends_at_its_time_limit(stack: Stack, script: Script) -> None:
    ended = punctual(stack, "submit", script("sleep 60"), "--timeout", "1s", "--wait", check=False)
    assert ended.returncode == 1
    assert "timed out" in ended.stderr


def test_all_that_a_program_is_given_reaches_it(stack: Stack, script: Script, tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(b"\xffwords")
    given: list[str | Path] = ["--arg=a b", "--arg=--x", "--env", "COLOUR=b=lue", "--stdin", tmp_path / "words"]
    program = script('printf "%s|" "$@" "$COLOUR"; cat - data/a | wc -c')
    ended = punctual(stack, "submit", program, *given, "--input", f"data/a={tmp_path / 'words'}", "--wait")
    assert ended.stdout == "a b|--x|b=lue|12\n"


def test_only_a_program_that_asks_for_a_network_has_one(stack: Stack, script: Script) -> None:
    program = script("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort")
    seen = [punctual(stack, "submit", program, *words, "--wait").stdout.split() for words in ([], ["--network"])]
    assert seen == [["lo"], ["lo", "tap0"]]


def test_control_characters_come_through_a_pipe_as_they_are(stack: Stack, script: Script) -> None:
    ended = punctual(stack, "submit", script(r"printf '\033[31mred\033[0m\n'"), "--wait")
    assert ended.stdout == "\x1b[31mred\x1b[0m\n"


def test_a_job_is_found_by_its_name_and_run_again(stack: Stack, script: Script, tmp_path: Path) -> None:
    name = f"again-{tmp_path.name}-{time.time_ns()}"
    job_id = punctual(stack, "submit", script("echo again"), "--name", name, "--cron", "0 0 1 1 *").stdout.strip()
    assert punctual(stack, "run", name, "--wait").stdout == "again\n"

    listed = json.loads(punctual(stack, "jobs", "--search", name, "-o", "json").stdout)
    assert [job["id"] for job in listed] == [job_id]
    assert job_id in punctual(stack, "jobs", "--search", name).stdout
    assert "schedules.0.cron\t0 0 1 1 *" in punctual(stack, "show", name).stdout
    _, *instants = punctual(stack, "next", job_id, "--count", "3").stdout.splitlines()
    assert [line.split("\t")[0][4:] for line in instants] == ["-01-01 00:00:00Z"] * 3

    found = json.loads(punctual(stack, "executions", "--job", name, "--status", "succeeded", "-o", "json").stdout)
    assert [execution["job_id"] for execution in found] == [job_id]
    assert punctual(stack, "logs", found[0]["id"]).stdout == "again\n"
    assert punctual(stack, "logs", "-f", found[0]["id"], "--attempt", "1").stdout == "again\n"


def test_a_program_that_is_no_text_is_uploaded(stack: Stack, tmp_path: Path) -> None:
    program = tmp_path / "big.sh"
    program.write_bytes(b"echo start\n" + b"#" * (2 * 1024 * 1024) + b"\necho end\n")
    assert punctual(stack, "submit", program, "--wait").stdout == "start\nend\n"
    # The server has it now: the second time there is nothing to upload.
    assert punctual(stack, "submit", program, "--wait").stdout == "start\nend\n"


def test_outputs_are_listed_and_fetched(stack: Stack, script: Script, tmp_path: Path) -> None:
    program = script("mkdir -p out/sub; echo one >out/one.txt; echo two >out/sub/two.txt")
    job_id = punctual(stack, "submit", program, "--cron", "0 0 1 1 *").stdout.strip()
    execution_id = punctual(stack, "run", job_id).stdout.strip()
    punctual(stack, "logs", "-f", execution_id)

    assert "one.txt\t4\t" in punctual(stack, "outputs", "list", execution_id).stdout
    punctual(stack, "outputs", "get", execution_id, "-d", tmp_path / "fetched")
    assert (tmp_path / "fetched/one.txt").read_text() == "one\n"
    assert (tmp_path / "fetched/sub/two.txt").read_text() == "two\n"
    missing = punctual(stack, "outputs", "get", execution_id, "three.txt", check=False)
    assert missing.returncode == 4
    assert "no output called 'three.txt'" in missing.stderr


def test_lost_outputs_are_reported(stack: Stack, script: Script) -> None:
    program = script("echo 1 >out/ok; echo 2 >'out/a\\b'; ln -s ok out/latest")
    waited = punctual(stack, "submit", program, "--name", f"left-out-{time.time_ns()}", "--wait")
    execution_id = waited.stderr.splitlines()[1].split()[1]
    listed = punctual(stack, "outputs", "list", execution_id)
    shown = punctual(stack, "show", execution_id)
    assert [line.split("\t")[0] for line in listed.stdout.splitlines()] == ["NAME", "ok"]
    for ended in (waited, listed, shown):
        assert ended.stderr.splitlines()[-2:] == [
            "Note: a\\b: not an acceptable file name; left out",
            "Note: latest: neither a regular file nor a directory; left out",
        ]
    assert "a\\b: not an acceptable file name" in shown.stdout


def test_an_execution_and_a_job_are_cancelled(stack: Stack, script: Script) -> None:
    job_id = punctual(stack, "submit", script("echo up; sleep 300"), "--cron", "0 0 1 1 *").stdout.strip()
    execution_id = punctual(stack, "run", job_id).stdout.strip()
    with Client(stack.url, stack.token) as client:
        wait_for(lambda: client.execution(execution_id).status == "running", "it runs")
        punctual(stack, "cancel", "--execution", execution_id)
        assert client.wait(execution_id, timeout_seconds=60).status == "cancelled"
        punctual(stack, "cancel", job_id, "--yes")
        assert client.job(job_id).status == "cancelled"


def test_a_waiting_execution_is_explained(stack: Stack, script: Script) -> None:
    schedule = ("--cron", "0 0 1 1 *", "--resource", "unicorn=2")
    job_id = punctual(stack, "submit", script("true"), *schedule).stdout.strip()
    execution_id = punctual(stack, "run", job_id).stdout.strip()
    words, *gates = punctual(stack, "explain", execution_id).stdout.splitlines()
    assert words == "It waits: no worker has enough free slots, cpu, memory_mb, disk_mb, unicorn."
    assert any(
        line.startswith("resource.unicorn\tclosed") and "0 unicorn free, and it needs 2" in line for line in gates
    )
    punctual(stack, "edit", job_id, "--memory", "64")
    punctual(stack, "cancel", job_id, "--yes")
    assert punctual(stack, "explain", execution_id).stdout == "It has ended: cancelled.\n"


def test_ctrl_c_stops_waiting_and_leaves_the_execution_alone(stack: Stack, script: Script) -> None:
    job_id = punctual(stack, "submit", script("echo up; sleep 300"), "--cron", "0 0 1 1 *").stdout.strip()
    waiting = subprocess.Popen(
        [sys.executable, "-m", "punctual_cli", "run", job_id, "--wait"],
        cwd=ROOT, env=environment_of(stack), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "up\n"
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=30)
    finally:
        waiting.kill()
        waiting.wait(timeout=10)
    assert waiting.returncode == 130
    assert said.startswith("Stopped waiting; the execution continues")
    assert said.count("\n") == 1
    with Client(stack.url, stack.token) as client:
        execution = client.executions(job_id=job_id)[0]
        assert execution.status == "running"
        client.cancel_execution(execution.id)
        assert client.wait(execution.id, timeout_seconds=60).status == "cancelled"


def test_refusal_of_the_server_is_one_line_that_names_the_field(stack: Stack, script: Script) -> None:
    ended = punctual(stack, "submit", script("echo"), "--cron", "61 * * * *", check=False)
    assert ended.returncode == 4
    assert ended.stderr.startswith("punctual: schedules.0.cron: ")
    assert ended.stderr.count("\n") == 1


def test_a_wrong_token_is_distinguished_from_a_missing_resource(stack: Stack) -> None:
    nowhere = punctual(stack, "show", "00000000-0000-7000-8000-000000000000", check=False)
    assert nowhere.returncode == 4
    refused = punctual(stack, "jobs", check=False, PUNCTUAL_TOKEN="wrong")
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1


def test_workers_are_listed(stack: Stack) -> None:
    lines = punctual(stack, "workers").stdout.splitlines()
    assert lines[0].startswith("ID\tNAME\tSTATUS")
    assert any("bash" in line and "python" in line for line in lines[1:])
    status, slots = lines[0].split("\t").index("STATUS"), lines[0].split("\t").index("SLOTS")

    def shows_what_it_runs() -> bool:
        rows = [line.split("\t") for line in punctual(stack, "workers").stdout.splitlines()[1:]]
        return any(row[status] == "online" and not row[slots].startswith("-/") for row in rows)

    wait_for(shows_what_it_runs, "its renewal said what it runs", seconds=30)
