"""An import is shown, written to a manifest, or applied after confirmation."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from punctual_cli.__main__ import main
from punctual_cli.apply.manifests import Source, read_manifest
from punctual_cli.importers.import_result import ImportedJob, ImportNote, ImportResult, SkippedEntry
from punctual_cli.importers.importing import render_manifest
from tests.unit.punctual_cli import terminals
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_apply import INSTANTS, stored

Punctual = Callable[..., "Ended"]
CRONTAB = "# Nightly\n0 3 * * * /opt/x.sh\n@reboot y\n61 * * * * z\n"

FIXTURE = json.dumps([
    {"model": "django_celery_beat.intervalschedule", "pk": 1, "fields": {"every": 5, "period": "minutes"}},
    {"model": "django_celery_beat.periodictask", "pk": 1,
     "fields": {"name": "t", "task": "shop.t", "interval": 1, "enabled": True}},
])  # fmt: skip


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def punctual(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Punctual:
    """The command in this process: starting one takes longer than all that these tests do."""

    def run(*words: str, typed: str, url: str = "") -> Ended:
        monkeypatch.setenv("PUNCTUAL_VAR", "/nonexistent")
        monkeypatch.setenv("PUNCTUAL_URL", url)
        monkeypatch.setenv("PUNCTUAL_TOKEN", "t" if url else "")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        code = main(words)
        shown = capsys.readouterr()
        return Ended(code, shown.out, shown.err)

    return run


@pytest.mark.parametrize(
    "script",
    [
        "echo\n",
        "a\tb \n",
        "  indented\n\n\nlast",
        "é ☃ \u2028 \x85",
        "#!x\n- a: b\n...\n---\n",
        "'\"\\n",
        "on",
        "x\r\ny\n",
    ],
)
def test_a_written_manifest_contains_jobs_skipped_entries_and_warnings(script: str) -> None:
    job = {"name": "2030-01-01", "runtime": "sh", "script": script, "env": {"A": "010", "B": "1.0e5"}, "stdin": script}
    left = SkippedEntry("f:1", "a\nb: [", "why\x1b")
    text = render_manifest(
        ImportResult(
            (ImportedJob("f:2", job, ("mind\nthis",)), ImportedJob("f:3", {**job, "name": "b"})),
            (left,),
            (ImportNote("f:1", "of\nall"),),
        )
    )
    first, second = read_manifest(text.encode(), "f", Path()).jobs
    assert (first.name, second.name) == ("2030-01-01", "b")
    assert (first.program, first.stdin) == (Source(text=script), Source(text=script))
    assert first.fields["env"] == {"A": "010", "B": "1.0e5"}
    assert text.splitlines()[:5] == [
        "# f:1: of all",
        "# Skipped, f:1: a b: [: why\\x1b",
        "jobs:",
        "# f:2",
        "# mind this",
    ]


@pytest.fixture
def world(server: RecordingServer) -> RecordingServer:
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    server.answer("GET", "/api/v1/calendars?limit=100", {"results": [], "next": None})
    for name in ("Nightly", "Nightly+e0f21e"):
        server.answer("GET", f"/api/v1/jobs?owner=me&name={name}&limit=100", {"results": [], "next": None})
    server.answer("POST", "/api/v1/schedules/preview", INSTANTS)
    problem = {"errors": [{"field": "schedules.0.cron", "message": "A bad minute."}]}
    server.answer("POST", "/api/v1/schedules/preview", problem, status=400)
    server.answer("POST", "/api/v1/schedules/preview", INSTANTS)
    server.answer("POST", "/api/v1/jobs", stored(name="Nightly"), status=201)
    return server


def made(server: RecordingServer) -> list[dict[str, object]]:
    return [json.loads(asked.body) for asked in server.requests if asked.path == "/api/v1/jobs" and asked.body]


def piped(server: RecordingServer, *, answer: str | None) -> terminals.Result:
    """`crontab -l | punctual import crontab -`, with somebody at a terminal or without one."""
    environment = {**os.environ, "PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t", "PUNCTUAL_VAR": "/nonexistent"}
    program = "import sys; from punctual_cli.__main__ import main; sys.exit(main(sys.argv[1:]))"
    words = ("import", "crontab", "-", "--tz", "Europe/Paris")
    return terminals.run_in_session(program, *words, typed=CRONTAB, answer=answer, environment=environment)


def test_a_piped_import_asks_on_the_controlling_terminal(world: RecordingServer) -> None:
    ended = piped(world, answer="n\n")
    assert ended.returncode == 130
    assert "Apply this plan to 1 jobs? [y/N]: " in ended.asked
    assert made(world) == []


def test_yes_on_the_terminal_creates_the_piped_jobs(world: RecordingServer) -> None:
    ended = piped(world, answer="y\n")
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (0, "Applied 1: Nightly.")
    assert [job["name"] for job in made(world)] == ["Nightly"]


def test_nothing_is_created_without_confirmation(world: RecordingServer) -> None:
    ended = piped(world, answer=None)
    assert ended.returncode == 2
    assert "+ Nightly: create" in ended.stdout
    assert ended.stderr.splitlines() == [
        "crontab:2: Nightly: The sandbox does not see /opt/x.sh: add it as an input, or include it in the script.",
        "crontab:3: skipped: @reboot y: It runs when the machine starts, which is not a time:"
        " make it a system service.",
        "crontab:4: skipped: z: A bad minute.",
        "punctual: There is no terminal to ask on: use --yes to confirm.",
    ]
    assert made(world) == []


def test_yes_option_creates_the_jobs(world: RecordingServer, punctual: Punctual) -> None:
    ended = punctual("import", "crontab", "-", "--tz", "Europe/Paris", "--yes", url=world.url, typed=CRONTAB)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (0, "Applied 1: Nightly.")
    (job,) = made(world)
    assert (job["name"], job["runtime"], job["script"]) == ("Nightly", "sh", "/opt/x.sh\n")
    assert (job["timeout_seconds"], job["max_concurrency"]) == (86400, None)


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_plan_is_printed_for_programs(
    world: RecordingServer, punctual: Punctual, output: str, read: Callable[[str], Any]
) -> None:
    words = ("import", "crontab", "-", "--tz", "Europe/Paris", "--yes", "-o", output)
    plan = read(punctual(*words, url=world.url, typed=CRONTAB).stdout)
    assert [(job["name"], job["action"]) for job in plan["jobs"]] == [("Nightly", "create")]
    assert read(punctual(*words, url=world.url, typed="@reboot x\n").stdout) == {"calendars": [], "jobs": []}


def test_refused_entries_are_not_written(world: RecordingServer, tmp_path: Path, punctual: Punctual) -> None:
    file = tmp_path / "j.yaml"
    ended = punctual("import", "crontab", "-", "--tz", "UTC", "--write", str(file), url=world.url, typed=CRONTAB)
    assert (ended.returncode, "crontab:4: skipped: z: A bad minute." in ended.stderr.splitlines()) == (0, True)
    assert [job.name for job in read_manifest(file.read_bytes(), "j.yaml", tmp_path).jobs] == ["Nightly"]
    assert "# Skipped, crontab:4: z: A bad minute." in file.read_text().splitlines()
    assert made(world) == []


def test_a_file_is_written_without_a_server_and_never_over_another(tmp_path: Path, punctual: Punctual) -> None:
    template = tmp_path / "run.py"
    template.write_text("import os\n")
    words = ("import", "celery-beat", "-", "--template", str(template), "--write", str(tmp_path / "j.yaml"))
    ended = punctual(*words, typed=FIXTURE)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "No server can be reached" in ended.stderr
    (job,) = read_manifest((tmp_path / "j.yaml").read_bytes(), "j.yaml", tmp_path).jobs
    assert (job.runtime.value, job.program, job.fields["network"], job.fields["secrets"]) == (
        "python", Source(text="import os\n"), False, [],
    )  # fmt: skip
    again = punctual(*words, typed=FIXTURE)
    assert (again.returncode, "exists already" in again.stderr) == (2, True)


def test_a_missing_secret_is_reported_before_anything_is_created(server: RecordingServer, punctual: Punctual) -> None:
    server.answer("POST", "/api/v1/schedules/preview", INSTANTS)
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    for name in ("t", "t+ca162b"):
        server.answer("GET", f"/api/v1/jobs?owner=me&name={name}&limit=100", {"results": [], "next": None})
    server.answer("GET", "/api/v1/secrets?limit=100", {"results": [], "next": None})
    ended = punctual("import", "celery-beat", "-", "--yes", url=server.url, typed=FIXTURE)
    assert (ended.returncode, ended.stdout) == (4, "")
    assert ended.stderr.startswith("punctual: There is no secret celery-broker-url: punctual secrets set ")
    assert made(server) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["import", "celery-beat"], "either a FILE or --app"),
        (["import", "crontab", "/nowhere"], "cannot be read"),
        (["import", "crontab", "-", "--tz", "Mars/Base"], "not a time zone"),
        (["import", "crontab", "-", "--write", "/nowhere/x", "-o", "json"], "-o cannot be combined with --write"),
        (["import", "crontab", "-", "--replace", "--keep-both"], "either --replace or --keep-both"),
        (["import", "crontab", "-", "--write", "/nowhere/x"], "Nothing can be imported"),
    ],
)
def test_mistakes_are_one_line(punctual: Punctual, words: list[str], sentence: str) -> None:
    ended = punctual(*words, typed="")
    assert ended.returncode == 2
    assert sentence in ended.stderr
