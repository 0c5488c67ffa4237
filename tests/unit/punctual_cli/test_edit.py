"""`edit`, `delete`, `calendars` and `calendar` as processes: requests, output and refusals."""

from __future__ import annotations

import json

import pytest

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

ID = "0198c0de-0000-7000-8000-000000000001"
OTHER = "0198c0de-0000-7000-8000-000000000002"
ADDRESS = f"/api/v1/jobs/{ID}"
JOB: dict[str, object] = {
    "id": ID,
    "name": "nightly",
    "status": "scheduled",
    "schedules": [{"id": "S1", "next_instant": "2030-01-01T00:00:00Z"}],
    "warnings": ["It fires rarely."],
}
CALENDAR: dict[str, object] = {"id": OTHER, "name": "holidays", "dates": ["2030-01-01", "2030-12-25"], "used_by": 3}


def sent(server: RecordingServer, method: str) -> object:
    (asked,) = [asked for asked in server.requests if asked.method == method]
    return json.loads(asked.body)


@pytest.fixture
def job(server: RecordingServer) -> RecordingServer:
    server.answer("GET", ADDRESS, JOB)
    server.answer("PATCH", ADDRESS, JOB)
    return server


def test_only_given_options_are_sent(job: RecordingServer) -> None:
    ended = punctual(
        "edit", ID, "--name", "new", "--arg", "x", "--env", "A=b", "--memory", "99", "--timeout", "1m",
        "--retries", "2", "--retry-on", "75", "--retry-on", "9", "--deadline", "1h", "--priority", "7",
        "--no-network", url=job.url,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == "Edited nightly. Next run: 2030-01-01 00:00:00Z.\nNote: It fires rarely.\n"
    assert sent(job, "PATCH") == {
        "name": "new",
        "args": ["x"],
        "env": {"A": "b"},
        "requirements": {"memory_mb": 99},
        "timeout_seconds": 60,
        "deadline_seconds": 3600,
        "retry": {"max_attempts": 3, "on_exit_codes": [75, 9]},
        "priority": 7,
        "network": False,
    }


@pytest.mark.parametrize(
    ("words", "schedules"),
    [
        (["--cron", "@daily", "--tz", "Europe/Paris"], [{"id": "S1", "cron": "@daily", "timezone": "Europe/Paris"}]),
        (["--every", "5m", "--cron", "@daily"], [{"every_seconds": 300}, {"cron": "@daily"}]),
        (["--calendar", "holidays"], [{"id": "S1", "calendar": "holidays"}]),
        (["--every", "1h", "--calendar", ""], [{"id": "S1", "every_seconds": 3600, "calendar": None}]),
        (["--no-schedules"], []),
    ],
)
def test_one_schedule_in_the_place_of_one_keeps_its_id(
    job: RecordingServer, words: list[str], schedules: list[dict[str, object]]
) -> None:
    assert punctual("edit", ID, *words, url=job.url).returncode == 0
    assert sent(job, "PATCH") == {"schedules": schedules}


def test_another_program_and_other_upstreams_are_sent(
    job: RecordingServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = tmp_path_factory.mktemp("script") / "new.py"
    script.write_text("print()\n")
    assert punctual("edit", ID, "--file", str(script), "--after", f"{OTHER}:failure", url=job.url).returncode == 0
    assert sent(job, "PATCH") == {
        "runtime": "python",
        "script": "print()\n",
        "dependencies": [{"job": OTHER, "condition": "failure"}],
    }


def test_no_upstreams_are_an_empty_list(job: RecordingServer) -> None:
    assert punctual("edit", ID, "--no-after", url=job.url).returncode == 0
    assert sent(job, "PATCH") == {"dependencies": []}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["edit", ID], "No change was given"),
        (["edit", ID, "--tz", "Europe/Paris"], "--tz has no meaning"),
        (["edit", ID, "--no-schedules", "--every", "5m"], "--no-schedules cannot be combined"),
        (["edit", ID, "--no-after", "--after", OTHER], "--no-after cannot be combined"),
        (["delete", ID], "use --yes"),
        (["calendar", "holidays", "--date", "tomorrow"], "not a date"),
        (["calendar", "holidays", "--date", "2030-01-01", "--add", "2030-01-02"], "--date cannot be combined"),
        (["calendar", "holidays", "--delete", "--rename", "x"], "--delete cannot be combined"),
        (["submit", "x.sh", "--calendar", "holidays"], "--calendar has no meaning"),
    ],
)
def test_contradicting_options_are_refused_without_a_request(
    job: RecordingServer, words: list[str], sentence: str
) -> None:
    ended = punctual(*words, url=job.url)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence in ended.stderr
    assert {asked.method for asked in job.requests} <= {"GET"}


def test_yes_option_deletes_a_job(job: RecordingServer) -> None:
    job.answer("DELETE", ADDRESS, b"", status=204)
    ended = punctual("delete", ID, "--yes", url=job.url)
    assert (ended.returncode, ended.stderr) == (0, "Deleted nightly.\n")
    assert [asked.method for asked in job.requests] == ["GET", "DELETE"]


@pytest.fixture
def calendars(server: RecordingServer) -> RecordingServer:
    server.answer("GET", "/api/v1/calendars?limit=50", {"results": [CALENDAR], "next": None})
    server.answer("GET", "/api/v1/calendars?limit=100", {"results": [CALENDAR], "next": None})
    server.answer("PATCH", f"/api/v1/calendars/{OTHER}", CALENDAR)
    server.answer("POST", "/api/v1/calendars", CALENDAR, status=201)
    server.answer("DELETE", f"/api/v1/calendars/{OTHER}", b"", status=204)
    return server


def test_calendars_are_listed_and_read(calendars: RecordingServer) -> None:
    assert punctual("calendars", url=calendars.url).stdout.splitlines()[1] == f"{OTHER}\tholidays\t2\t3"
    assert json.loads(punctual("calendars", "-o", "json", url=calendars.url).stdout) == [CALENDAR]
    assert punctual("calendar", "holidays", url=calendars.url).stdout == "2030-01-01\n2030-12-25\n"


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["--date", "2031-05-01", "--date", "2031-01-01"], {"dates": ["2031-01-01", "2031-05-01"]}),
        (["--add", "2030-05-01", "--remove", "2030-01-01"], {"dates": ["2030-05-01", "2030-12-25"]}),
        (["--remove", "2030-01-01", "--remove", "2030-12-25"], {"dates": []}),
        (["--rename", "feasts"], {"name": "feasts"}),
    ],
)
def test_a_calendar_is_changed(calendars: RecordingServer, words: list[str], body: dict[str, object]) -> None:
    ended = punctual("calendar", "holidays", *words, url=calendars.url)
    assert ended.returncode == 0
    assert "3 schedules use it" in ended.stderr
    assert sent(calendars, "PATCH") == body


def test_a_calendar_is_created_and_deleted(calendars: RecordingServer) -> None:
    assert punctual("calendar", "new", "--add", "2030-05-01", url=calendars.url).returncode == 0
    assert sent(calendars, "POST") == {"name": "new", "dates": ["2030-05-01"]}
    assert punctual("calendar", "holidays", "--delete", "--yes", url=calendars.url).returncode == 0
    assert [asked.method for asked in calendars.requests][-1] == "DELETE"
    ended = punctual("calendar", "unknown", url=calendars.url)
    assert (ended.returncode, "no calendar called 'unknown'" in ended.stderr) == (4, True)
