"""`audit` as a process: what it asks for, what it prints, and its exit code."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.cli.server import RecordingServer
from tests.unit.cli.test_command_line import punctual

FROM, TO = "2030-01-31T08:00:00Z", "2030-01-31T09:00:00Z"
ADDRESS = "/api/v1/audit/firings?from=2030-01-31T08%3A00%3A00Z"
CLEAN = {
    "clean": True,
    "from": FROM,
    "to": TO,
    "expected": 3,
    "fired": 3,
    "lateness_ms": {"p50": 1.5, "max": 9.0},
    "differences": [],
}
DIFFERENT = CLEAN | {
    "clean": False,
    "lateness_ms": None,
    "differences": [{"schedule_id": "S", "instant": FROM, "what": "absent", "count": 2}],
}


def test_a_clean_audit_is_a_table_and_code_0(server: RecordingServer) -> None:
    server.answer("GET", f"{ADDRESS}&to=2030-01-31T09%3A00%3A00Z", CLEAN)
    ended = punctual("audit", "--from", FROM, "--to", TO, url=server.url)
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert "fired\t3" in lines
    assert "lateness p50\t1.5 ms" in lines
    assert not any(line.startswith(("DIFFERENCE", "lateness_ms")) for line in lines)
    assert ended.stderr == "Every instant is accounted for.\n"


def test_differences_are_listed_and_code_1(server: RecordingServer) -> None:
    server.answer("GET", ADDRESS, DIFFERENT)
    ended = punctual("audit", "--from", FROM, url=server.url)
    assert ended.returncode == 1
    assert f"absent\t2\tS\t{FROM}" in ended.stdout.splitlines()
    assert "nothing explains" in ended.stderr


@pytest.mark.parametrize(("answer", "code"), [(CLEAN, 0), (DIFFERENT, 1)])
def test_json_is_the_answer_itself(server: RecordingServer, answer: dict[str, object], code: int) -> None:
    server.answer("GET", ADDRESS, answer)
    ended = punctual("audit", "--from", FROM, "-o", "json", url=server.url)
    assert (ended.returncode, json.loads(ended.stdout), ended.stderr) == (code, answer, "")


def test_a_duration_is_so_long_ago_and_a_job_may_be_named(server: RecordingServer) -> None:
    job = "0198c0de-0000-7000-8000-000000000001"
    punctual("audit", "--from", "1h30m", "--to", "5m", "--job", job, url=server.url)
    asked = parse_qs(urlsplit(server.requests[0].path).query)
    assert asked["job_id"] == [job]
    now = datetime.now(UTC)
    for name, ago in (("from", timedelta(minutes=90)), ("to", timedelta(minutes=5))):
        assert timedelta(0) <= now - ago - datetime.fromisoformat(asked[name][0]) < timedelta(minutes=1)


def test_a_word_that_is_no_time_is_wrong_usage() -> None:
    ended = punctual("audit", "--from", "soon")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "'soon' is not a time" in ended.stderr
    assert punctual("audit").returncode == 2
