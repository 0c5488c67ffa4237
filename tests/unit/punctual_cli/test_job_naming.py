"""Names of imported jobs are stable, and different jobs of the same name are not changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

import pytest

from punctual_cli.importers.crontab import read_crontab
from punctual_cli.importers.import_result import ImportedJob, ImportResult
from punctual_cli.importers.job_naming import ExistingJobs, OnConflict, name_jobs
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_apply import stored

# What tells the commands apart that would have the same name: it must not change from one release to the next.
MARKS = {"logger a": "610fc4", "logger b": "e9b86b", "logger c": "55ca66"}
A, B, C = (f"logger {mark}" for mark in MARKS.values())
ENV = {"DB": "1"}


def read(text: str) -> ImportResult:
    return read_crontab(text.encode(), "tab", system=False, timezone="UTC")


def commands(imports: ImportResult) -> dict[str, str]:
    return {each.name: str(each.job["script"]).strip() for each in imports.jobs}


class StoredJobs:
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

    def by_name(self, text: str, clash: OnConflict = OnConflict.SKIP) -> ImportResult:
        return name_jobs(read(text), ExistingJobs(self._server.client), clash)


def test_names_do_not_depend_on_the_place_in_the_file() -> None:
    lines = [f"@daily {command}\n" for command in MARKS]
    forwards = name_jobs(read("".join(lines)), None, OnConflict.SKIP)
    backwards = name_jobs(read("".join(reversed(lines))), None, OnConflict.SKIP)
    assert commands(forwards) == commands(backwards) == {A: "logger a", B: "logger b", C: "logger c"}
    assert commands(name_jobs(read(lines[0]), None, OnConflict.SKIP)) == {"logger": "logger a"}


def test_the_same_command_at_several_times_is_one_job() -> None:
    (each,) = name_jobs(read("@daily x\n\n@hourly x\n"), None, OnConflict.KEEP_BOTH).jobs
    assert (each.name, each.where) == ("x", "tab:1, tab:3")
    schedules: Any = each.job["schedules"]
    assert [schedule["cron"] for schedule in schedules] == ["@daily", "@hourly"]


def test_the_same_command_with_other_variables_is_another_job(server: RecordingServer) -> None:
    text = "DB=1\n@daily logger a\nDB=2\n@daily logger a\n"
    first, second = name_jobs(read(text), None, OnConflict.SKIP).jobs
    assert first.name != second.name
    assert (first.job["env"], second.job["env"]) == ({"DB": "1"}, {"DB": "2"})
    server.answer(
        "GET", f"/api/v1/jobs?owner=me&name={quote_plus(second.name)}&limit=100", {"results": [], "next": None}
    )
    kept, more = StoredJobs(server, {"logger": "logger a"}, env=ENV).by_name(text).jobs
    assert (kept.name, kept.job["env"], more.name) == ("logger", ENV, second.name)


def test_a_command_with_too_many_schedules_is_skipped() -> None:
    imports = name_jobs(read("@daily x\n" * 51 + "@daily y\n"), None, OnConflict.SKIP)
    assert (list(commands(imports)), len(imports.skipped)) == (["y"], 1)


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
def test_an_imported_job_keeps_its_name(
    server: RecordingServer, there: dict[str, str], text: str, named: dict[str, str]
) -> None:
    imports = StoredJobs(server, there).by_name(text)
    assert (commands(imports), imports.skipped) == (named, ())
    assert [each.warnings for each in imports.jobs] == [()] * len(named)


@pytest.mark.parametrize(
    ("there", "clash", "named"),
    [
        ("logger", OnConflict.SKIP, None), ("logger", OnConflict.REPLACE, "logger"),
        ("logger", OnConflict.KEEP_BOTH, A),
        (A, OnConflict.SKIP, None), (A, OnConflict.KEEP_BOTH, None), (A, OnConflict.REPLACE, A),
    ],
)  # fmt: skip
def test_a_different_job_of_the_same_name_is_changed_only_on_request(
    server: RecordingServer, there: str, clash: OnConflict, named: str | None
) -> None:
    imports = StoredJobs(server, {there: "by hand"}).by_name("@daily logger a\n", clash)
    assert list(commands(imports)) == ([named] if named else [])
    for left in imports.skipped:
        assert (left.where, left.what) == ("tab:1", there)
        assert left.reason.startswith(f"Your job {there} runs something else: --replace makes it run this")
        assert ("--keep-both" in left.reason) is (there == "logger")


def test_lines_that_share_the_name_of_a_different_job_get_a_warning(server: RecordingServer) -> None:
    imports = StoredJobs(server, {"logger": "by hand"}).by_name("@daily logger a\n@daily logger b\n")
    assert list(commands(imports)) == [A, B]
    assert all("Your job logger runs something else and is not changed" in each.warnings[0] for each in imports.jobs)


@pytest.mark.parametrize(
    ("changes", "ours"),
    [
        ({"env": {"BEAT_TASK": "shop.t", "BEAT_ARGS": "[1]"}}, True), ({"env": {"BEAT_TASK": "shop.u"}}, False),
        ({"env": {}}, False), ({"env": {"BEAT_TASK": "shop.t"}, "secrets": [{"name": "other"}]}, False),
    ],
)  # fmt: skip
def test_a_periodic_task_is_identified_by_task_and_broker(
    server: RecordingServer, changes: dict[str, Any], ours: bool
) -> None:
    job = {
        "name": "t", "runtime": "sh", "script": "another\n", "env": {"BEAT_TASK": "shop.t"},
        "schedules": [{"every_seconds": 60}], "secrets": [{"name": "broker", "env": "CELERY_BROKER_URL"}],
    }  # fmt: skip
    there = stored(name="t", **{"secrets": [{"name": "broker", "env": "CELERY_BROKER_URL", "file": None}], **changes})
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    server.answer("GET", "/api/v1/jobs?owner=me&name=t&limit=100", {"results": [there], "next": None})
    imports = ImportResult((ImportedJob("f", job, task="shop.t"),), ())
    own = name_jobs(
        ImportResult((imports.jobs[0], ImportedJob("f", {**job, "env": {}}, task="u")), ()), None, OnConflict.KEEP_BOTH
    ).jobs[0]
    path = f"/api/v1/jobs?owner=me&name={quote_plus(own.name)}&limit=100"
    server.answer("GET", path, {"results": [], "next": None})
    found = name_jobs(imports, ExistingJobs(server.client), OnConflict.SKIP)
    assert ([each.name for each in found.jobs], len(found.skipped)) == (["t"] if ours else [], 0 if ours else 1)
