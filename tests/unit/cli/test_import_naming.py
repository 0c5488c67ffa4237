"""Names of imported jobs: they stay with the command, and no job that runs something else is changed unasked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

import pytest

from cli.crontabs import read_crontab
from cli.import_naming import Clash, Known, name_jobs
from cli.imported import Imported, Imports
from tests.unit.cli.server import RecordingServer
from tests.unit.cli.test_apply import stored

# What tells the commands apart that would have the same name: it must not change from one release to the next.
MARKS = {"logger a": "610fc4", "logger b": "e9b86b", "logger c": "55ca66"}
A, B, C = (f"logger {mark}" for mark in MARKS.values())
ENV = {"DB": "1"}


def read(text: str) -> Imports:
    return read_crontab(text.encode(), "tab", system=False, timezone="UTC")


def commands(imports: Imports) -> dict[str, str]:
    return {each.name: str(each.job["script"]).strip() for each in imports.jobs}


class Shelf:
    """A server that has jobs, of which only names, programs and variables matter here."""

    def __init__(self, server: RecordingServer, jobs: Mapping[str, str], env: Mapping[str, str] | None = None) -> None:
        self._server = server
        server.answer("GET", "/api/v1/usage", {"owner": "me"})
        for name in {"logger", A, B, C, *jobs}:
            found = [stored(name=name, artifact=name.replace(" ", "-"), env=env or {})] if name in jobs else []
            path = f"/api/v1/jobs?owner=me&name={quote_plus(name)}&limit=100"
            server.answer("GET", path, {"results": found, "next": None})
        for name, command in jobs.items():
            digest = hashlib.sha256(f"{command}\n".encode()).hexdigest()
            server.answer("GET", f"/api/v1/artifacts/{name.replace(' ', '-')}", {"sha256": digest})

    def named(self, text: str, clash: Clash = Clash.LEAVE_OUT) -> Imports:
        return name_jobs(read(text), Known(self._server.client), clash)


def test_names_do_not_depend_on_the_place_in_the_file() -> None:
    lines = [f"@daily {command}\n" for command in MARKS]
    forwards = name_jobs(read("".join(lines)), None, Clash.LEAVE_OUT)
    backwards = name_jobs(read("".join(reversed(lines))), None, Clash.LEAVE_OUT)
    assert commands(forwards) == commands(backwards) == {A: "logger a", B: "logger b", C: "logger c"}
    assert commands(name_jobs(read(lines[0]), None, Clash.LEAVE_OUT)) == {"logger": "logger a"}


def test_the_same_command_at_several_times_is_one_job() -> None:
    (each,) = name_jobs(read("@daily x\n\n@hourly x\n"), None, Clash.BESIDE).jobs
    assert (each.name, each.where) == ("x", "tab:1, tab:3")
    schedules: Any = each.job["schedules"]
    assert [schedule["cron"] for schedule in schedules] == ["@daily", "@hourly"]


def test_the_same_command_with_other_variables_is_another_job(server: RecordingServer) -> None:
    text = "DB=1\n@daily logger a\nDB=2\n@daily logger a\n"
    first, second = name_jobs(read(text), None, Clash.LEAVE_OUT).jobs
    assert first.name != second.name
    assert (first.job["env"], second.job["env"]) == ({"DB": "1"}, {"DB": "2"})
    server.answer(
        "GET", f"/api/v1/jobs?owner=me&name={quote_plus(second.name)}&limit=100", {"results": [], "next": None}
    )
    kept, more = Shelf(server, {"logger": "logger a"}, env=ENV).named(text).jobs
    assert (kept.name, kept.job["env"], more.name) == ("logger", ENV, second.name)


def test_a_command_in_more_lines_than_a_job_has_schedules_is_left_out() -> None:
    imports = name_jobs(read("@daily x\n" * 51 + "@daily y\n"), None, Clash.LEAVE_OUT)
    assert (list(commands(imports)), len(imports.left_out)) == (["y"], 1)


@pytest.mark.parametrize(
    ("there", "text", "named"),
    [
        # The first import, again, with another time.
        ({"logger": "logger a"}, "@weekly logger a\n", {"logger": "logger a"}),
        ({A: "logger a", B: "logger b"}, "@daily logger b\n@daily logger a\n", {A: "logger a", B: "logger b"}),
        # Another line that begins alike, above.
        ({"logger": "logger a"}, "@daily logger c\n@daily logger a\n", {"logger": "logger a", C: "logger c"}),
        ({A: "logger a", B: "logger b"}, "@daily logger c\n@daily logger a\n@daily logger b\n",
         {A: "logger a", B: "logger b", C: "logger c"}),
        # All others are gone from the file.
        ({A: "logger a", B: "logger b"}, "@daily logger b\n", {B: "logger b"}),
    ],
)  # fmt: skip
def test_what_an_import_has_made_keeps_its_name(
    server: RecordingServer, there: dict[str, str], text: str, named: dict[str, str]
) -> None:
    imports = Shelf(server, there).named(text)
    assert (commands(imports), imports.left_out) == (named, ())
    assert [each.warnings for each in imports.jobs] == [()] * len(named)


@pytest.mark.parametrize(
    ("there", "clash", "named"),
    [
        ("logger", Clash.LEAVE_OUT, None), ("logger", Clash.REPLACE, "logger"), ("logger", Clash.BESIDE, A),
        (A, Clash.LEAVE_OUT, None), (A, Clash.BESIDE, None), (A, Clash.REPLACE, A),
    ],
)  # fmt: skip
def test_a_job_that_runs_something_else_is_not_changed_unless_told_to(
    server: RecordingServer, there: str, clash: Clash, named: str | None
) -> None:
    imports = Shelf(server, {there: "by hand"}).named("@daily logger a\n", clash)
    assert list(commands(imports)) == ([named] if named else [])
    for left in imports.left_out:
        assert (left.where, left.what) == ("tab:1", there)
        assert left.reason.startswith(f"Your job {there} runs something else: --replace makes it run this")
        assert ("--beside" in left.reason) is (there == "logger")


def test_a_job_whose_name_several_lines_would_have_is_told_of(server: RecordingServer) -> None:
    imports = Shelf(server, {"logger": "by hand"}).named("@daily logger a\n@daily logger b\n")
    assert list(commands(imports)) == [A, B]
    assert all("Your job logger runs something else, and stays" in each.warnings[0] for each in imports.jobs)


@pytest.mark.parametrize(
    ("changes", "ours"),
    [
        ({"env": {"BEAT_TASK": "shop.t", "BEAT_ARGS": "[1]"}}, True), ({"env": {"BEAT_TASK": "shop.u"}}, False),
        ({"env": {}}, False), ({"env": {"BEAT_TASK": "shop.t"}, "secrets": [{"name": "other"}]}, False),
    ],
)  # fmt: skip
def test_a_periodic_task_is_told_by_its_task_and_its_broker(
    server: RecordingServer, changes: dict[str, Any], ours: bool
) -> None:
    job = {
        "name": "t", "runtime": "sh", "script": "another\n", "env": {"BEAT_TASK": "shop.t"},
        "schedules": [{"every_seconds": 60}], "secrets": [{"name": "broker", "env": "CELERY_BROKER_URL"}],
    }  # fmt: skip
    there = stored(name="t", **{"secrets": [{"name": "broker", "env": "CELERY_BROKER_URL", "file": None}], **changes})
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    server.answer("GET", "/api/v1/jobs?owner=me&name=t&limit=100", {"results": [there], "next": None})
    imports = Imports((Imported("f", job, task="shop.t"),), ())
    own = name_jobs(
        Imports((imports.jobs[0], Imported("f", {**job, "env": {}}, task="u")), ()), None, Clash.BESIDE
    ).jobs[0]
    path = f"/api/v1/jobs?owner=me&name={quote_plus(own.name)}&limit=100"
    server.answer("GET", path, {"results": [], "next": None})
    found = name_jobs(imports, Known(server.client), Clash.LEAVE_OUT)
    assert ([each.name for each in found.jobs], len(found.left_out)) == (["t"] if ours else [], 0 if ours else 1)
