"""Completion through the variables that the shells set; and that help and completion import only what they need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from punctual_cli.commands import ENTRIES
from punctual_cli.commands.completion import COMPLETE_VARIABLE, complete_job_name
from punctual_cli.root import load_command
from punctual_cli.shell_completion import rejoin_split_words
from tests.support.forked import run_forked
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_troubles import odd_server
from tests.unit.punctual_cli.whole import whole_tree

ROOT = Path(__file__).resolve().parents[3]
PAGE = {"results": [{"id": "J", "name": name, "status": "x"} for name in ("nightly", "$(reboot)", "night owl")]}
HEAVY = {"httpx", "rich", "yaml", "punctual_client.client"}
EVERY_HELP = f"""
import os, sys
from punctual_cli.__main__ import main
from punctual_cli.commands import ENTRIES
commands = [[name] for name in ENTRIES] + [["tokens", "create"], ["import", "celery-beat"], []]
assert not any(main([*words, "--help"]) for words in commands)
os.environ["{COMPLETE_VARIABLE}"] = "complete_zsh"
for words in commands:
    os.environ["_TYPER_COMPLETE_ARGS"] = " ".join(["punctual", *words, "-"])
    assert not main([])
print("imported:", *(name for name in {sorted(HEAVY)} if sys.modules.get(name)))
"""


def complete(*words: str, by: str = "bash", **environment: str) -> subprocess.CompletedProcess[str]:
    """Ask for the completion of the last word, as the script of a shell does."""
    if by == "bash":
        asked = {"COMP_WORDS": "\n".join(["punctual", *words]), "COMP_CWORD": str(len(words))}
    else:
        asked = {"_TYPER_COMPLETE_ARGS": " ".join(["punctual", *words])}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PUNCTUAL_")}
    known = {"PUNCTUAL_VAR": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", COMPLETE_VARIABLE: f"complete_{by}"}
    return run_forked("punctual_cli", environment=inherited | known | asked | environment)


def candidates(*words: str, **environment: str) -> list[str]:
    ended = complete(*words, **environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["wor"], ["workers"]),
        (["tokens", ""], ["create", "revoke"]),
        (["executions", "--wo"], ["--worker"]),
        (["jobs", "-o", ""], ["table", "wide", "json", "yaml"]),
        (["jobs", "--output", "=", "js"], ["json"]),
        (["jobs", "--output", "="], ["table", "wide", "json", "yaml"]),
        (["jobs", "--output=wide", "--out"], []),
        (["jobs", "--output", "=", "wide", "--out"], []),
        (["submit", "--env", "A=b", "--en"], ["--env"]),
        (["submit", "--env", "A", "=", "b", "--en"], ["--env"]),
        (["submit", "a.py", "--runtime", "p"], ["perl", "php", "python"]),
        (["submit", "a"], []),
        (["completion", "z"], ["zsh"]),
        (["no-such-command", ""], []),
        (["--version", "no-such"], []),
        (["--no-color", "bac"], ["backfill"]),
        (["tokens", "create", "--scope", "w"], ["worker"]),
        ([""], [*ENTRIES]),
    ],
)
def test_commands_options_and_values_are_completed(words: list[str], expected: list[str]) -> None:
    assert candidates(*words) == expected


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["--output", "=", "js"], ["--output", "js"]),
        (["--env", "A", "=", "b", "="], ["--env", "A=b="]),
        (["=", "a"], ["=", "a"]),
    ],
)
def test_words_that_bash_splits_at_equal_signs_are_rejoined(words: list[str], joined: list[str]) -> None:
    assert rejoin_split_words(words) == joined


def test_zsh_and_fish_get_descriptions_and_fall_back_to_files() -> None:
    expected = '_arguments \'*: :(("--wait-limit":"Stop waiting after this long."))\'\n'
    assert complete("run", "--wait-l", by="zsh").stdout == expected
    assert complete("jobs", "--output=js", by="zsh").stdout == "_arguments '*: :((\"--output=json\"))'\n"
    assert complete("submit", "a", by="zsh").stdout == "_files\n"
    fish = complete("worke", by="fish", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert fish.stdout == f"workers\t{ENTRIES['workers'].summary}\n"
    option = complete("jobs", "--output=js", by="fish", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert option.stdout == "--output=json\n"
    known = complete("worke", by="fish", _TYPER_COMPLETE_FISH_ACTION="is-args")
    unknown = complete("submit", "a", by="fish", _TYPER_COMPLETE_FISH_ACTION="is-args")
    assert (known.returncode, unknown.returncode) == (0, 1)


@pytest.mark.parametrize(
    ("by", "lines"),
    [
        ("bash", ["complete -o default -F _punctual_completion punctual", 'complete_bash "${1/#\\~/$HOME}"']),
        ("zsh", ["compdef _punctual_completion punctual", "complete_zsh ${~${(Q)words[1]}}"]),
        ("fish", ["complete --command punctual ", "(commandline -opc)[1])"]),
    ],
)
def test_the_script_of_a_shell_calls_the_command_as_it_was_typed(by: str, lines: list[str]) -> None:
    script = _run(["-m", "punctual_cli", "completion", by])
    assert [line for line in lines if line not in script] == []
    assert f"{COMPLETE_VARIABLE}=complete_{by}" in script


def test_a_checkout_also_completes_the_commands_of_its_wrapper() -> None:
    asked = {"PUNCTUAL_PROGRAM": "./punctual", COMPLETE_VARIABLE: "complete_bash", "COMP_CWORD": "1"}
    assert _run(["-m", "punctual_cli"], **asked, COMP_WORDS="./punctual\nwor").split() == ["workers", "worker"]
    asked["COMP_CWORD"] = "2"
    assert _run(["-m", "punctual_cli"], **asked, COMP_WORDS="./punctual\nstack\nst").split() == ["status"]
    asked["COMP_CWORD"] = "3"
    assert _run(["-m", "punctual_cli"], **asked, COMP_WORDS="./punctual\nstack\nstatus\n").split() == []


def test_names_come_from_the_given_profile(server: RecordingServer, tmp_path: Path) -> None:
    (tmp_path / "punctual").mkdir()
    (tmp_path / "punctual/config.toml").write_text(f'[profiles.work]\nurl = "{server.url}"\ntoken = "t"\n')
    (tmp_path / "punctual/config.toml").chmod(0o600)
    environment = {
        "XDG_CONFIG_HOME": str(tmp_path), "PUNCTUAL_PROFILE": "", "PUNCTUAL_URL": "http://127.0.0.1:1",
        "PUNCTUAL_TOKEN": "other",
    }  # fmt: skip
    server.answer("GET", "/api/v1/jobs?search=ni&limit=50", PAGE)
    assert candidates("--profile", "w", **environment) == ["work"]
    assert candidates("profiles", "use", "", **environment) == ["work", "local"]
    assert candidates("show", "ni", **environment) == []
    assert candidates("--profile", "work", "executions", "--job", "ni", **environment) == ["nightly"]


def test_only_names_that_are_harmless_in_a_shell_are_completed(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUNCTUAL_URL", server.url)
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")
    for asked in ("limit=50", "search=nig&limit=50", "search=x&limit=50"):
        server.answer("GET", f"/api/v1/jobs?{asked}", PAGE)
    assert complete_job_name("") == complete_job_name("nig") == ["nightly"]
    assert complete_job_name("x") == []


def test_completion_is_silent_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")
    with odd_server(lambda _: None) as url:
        for address in (url, "http://127.0.0.1:1"):
            monkeypatch.setenv("PUNCTUAL_URL", address)
            assert complete_job_name("n") == []
    monkeypatch.delenv("PUNCTUAL_URL")
    monkeypatch.setenv("PUNCTUAL_VAR", "/nonexistent")
    assert complete_job_name("n") == []


def test_the_table_of_commands_names_all_commands_and_their_modules() -> None:
    assert set(whole_tree().commands) == set(ENTRIES)
    for name, entry in ENTRIES.items():
        command = load_command(name)
        callback = command.callback or next(iter(getattr(command, "commands", {}).values())).callback
        assert callback is not None
        assert callback.__module__ == f"punctual_cli.commands.{entry.module}"


def test_help_and_completion_import_no_network_or_rendering_library() -> None:
    shown = _run(["-c", EVERY_HELP], PUNCTUAL_VAR="/nonexistent")
    assert shown.splitlines()[-1] == "imported:"


def test_a_list_into_a_pipe_imports_nothing_that_draws(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": PAGE["results"], "next": None})
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "punctual_cli", "jobs"],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t"},
    )  # fmt: skip
    imported = {name.partition(".")[0] for name in re.findall(r"\|\s+(\S+)$", ended.stderr, re.MULTILINE)}
    assert "httpx" in imported
    assert not imported & {"rich", "pygments", "click", "yaml"}


def _run(arguments: list[str], **environment: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
