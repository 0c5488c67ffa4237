"""What is offered for a word that is being typed; and that neither this nor help reads what it does not need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from cli.commands import ENTRIES
from cli.completion import ASKED, answer, job_names
from cli.root import read_command, root
from tests.unit.cli.server import RecordingServer
from tests.unit.cli.test_troubles import odd_server
from tests.unit.cli.whole import whole_tree

ROOT = Path(__file__).resolve().parents[3]
PAGE = {"results": [{"id": "J", "name": name, "status": "x"} for name in ("nightly", "$(reboot)", "night owl")]}
HEAVY = {"httpx", "rich", "yaml", "cli.client"}
EVERY_HELP = f"""
import sys
from cli.__main__ import main
from cli.commands import ENTRIES
words = [[name] for name in ENTRIES] + [["tokens", "create"], ["import", "celery-beat"], []]
assert not any(main([*each, "--help"]) for each in words)
assert not any(main(["{ASKED}", "zsh", *each, "-"]) for each in words)
print("read:", *sorted(set({sorted(HEAVY)}) & set(sys.modules)))
"""


def offered(*words: str, by: str = "bash") -> list[str]:
    return list(answer(typer.main.get_command(root), by, words))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["wor"], ["worker", "workers"]),
        (["tokens", ""], ["create", "revoke"]),
        (["stack", "st"], ["status"]),
        (["stack", "status", ""], []),
        (["executions", "--wo"], ["--worker"]),
        (["jobs", "-o", ""], ["table", "wide", "json", "yaml"]),
        (["jobs", "--output", "=", "js"], ["json"]),
        (["jobs", "--output", "="], ["table", "wide", "json", "yaml"]),
        (["jobs", "--output=wide", "--out"], []),
        (["submit", "--env", "A=b", "--en"], ["--env"]),
        (["submit", "a.py", "--runtime", "p"], ["perl", "php", "python"]),
        (["submit", "a"], []),
        (["completion", "z"], ["zsh"]),
        (["jobs", "--", "--o"], []),
        (["no-such-command", ""], []),
        (["--no-color", "bac"], ["backfill"]),
        (["tokens", "create", "--scope", "w"], ["worker"]),
        ([], [*("up", "down", "stack", "worker", "test"), *ENTRIES]),
    ],
)
def test_what_may_be_meant_is_offered(words: list[str], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_each_shell_is_answered_in_its_way() -> None:
    assert offered("jobs", "--output=js", by="fish") == ["--output=json\t"]
    assert offered("jobs", "--output=js", by="zsh") == ["json\t"]
    assert offered("run", "--wait-l", by="zsh") == ["--wait-limit\tStop waiting after this long."]
    assert offered("worke", by="fish")[1] == f"workers\t{ENTRIES['workers'].summary}"


def test_names_are_those_of_the_profile_that_was_named(
    server: RecordingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "punctual").mkdir()
    (tmp_path / "punctual/config.toml").write_text(f'[profiles.work]\nurl = "{server.url}"\ntoken = "t"\n')
    (tmp_path / "punctual/config.toml").chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PUNCTUAL_PROFILE", "")
    monkeypatch.setenv("PUNCTUAL_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PUNCTUAL_TOKEN", "other")
    server.answer("GET", "/api/v1/jobs?search=ni&limit=50", PAGE)
    assert offered("--profile", "w") == ["work"]
    assert offered("profiles", "use", "") == ["work", "local"]
    assert offered("show", "ni") == []
    assert offered("--profile", "work", "executions", "--job", "ni") == ["nightly"]


def test_names_are_completed_if_they_are_harmless_in_a_shell(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUNCTUAL_URL", server.url)
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")
    for asked in ("limit=50", "search=nig&limit=50", "search=x&limit=50"):
        server.answer("GET", f"/api/v1/jobs?{asked}", PAGE)
    assert job_names("") == job_names("nig") == ["nightly"]
    assert job_names("x") == []


def test_completing_is_silent_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")
    with odd_server(lambda _: None) as url:
        for address in (url, "http://127.0.0.1:1"):
            monkeypatch.setenv("PUNCTUAL_URL", address)
            assert job_names("n") == []
    monkeypatch.delenv("PUNCTUAL_URL")
    monkeypatch.setenv("PUNCTUAL_VAR", "/nonexistent")
    assert job_names("n") == []


def test_the_table_of_commands_names_them_all_and_their_modules() -> None:
    assert set(whole_tree().commands) == set(ENTRIES)
    for name, entry in ENTRIES.items():
        command = read_command(name)
        said = command.callback or next(iter(getattr(command, "commands", {}).values())).callback
        assert said is not None
        assert said.__module__ == f"cli.commands.{entry.module}"


def test_neither_help_nor_completing_reads_what_talks_or_draws() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EVERY_HELP],
        cwd=ROOT, env=os.environ | {"PUNCTUAL_VAR": "/nonexistent"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ended.stdout.splitlines()[-1] == "read:"


def test_a_list_into_a_pipe_reads_nothing_that_draws(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": PAGE["results"], "next": None})
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cli", "jobs"], cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t"},
    )  # fmt: skip
    read = {name.partition(".")[0] for name in re.findall(r"\|\s+(\S+)$", ended.stderr, re.MULTILINE)}
    assert "httpx" in read
    assert not read & {"rich", "pygments", "click", "yaml"}
