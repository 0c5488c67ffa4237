"""`audit firings`, `attempts` and `changes` as processes: requests, output and exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

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
    ended = punctual("audit", "firings", "--from", FROM, "--to", TO, url=server.url)
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert "fired\t3" in lines
    assert "lateness p50\t1.5 ms" in lines
    assert not any(line.startswith(("DIFFERENCE", "lateness_ms")) for line in lines)
    assert ended.stderr == "Every instant is accounted for.\n"


def test_differences_are_listed_and_code_1(server: RecordingServer) -> None:
    server.answer("GET", ADDRESS, DIFFERENT)
    ended = punctual("audit", "firings", "--from", FROM, url=server.url)
    assert ended.returncode == 1
    assert f"absent\t2\tS\t{FROM}" in ended.stdout.splitlines()
    assert "unexplained differences" in ended.stderr


@pytest.mark.parametrize(("answer", "code"), [(CLEAN, 0), (DIFFERENT, 1)])
def test_json_is_the_answer_itself(server: RecordingServer, answer: dict[str, object], code: int) -> None:
    server.answer("GET", ADDRESS, answer)
    ended = punctual("audit", "firings", "--from", FROM, "-o", "json", url=server.url)
    assert (ended.returncode, json.loads(ended.stdout), ended.stderr) == (code, answer, "")


def test_from_accepts_a_duration_and_job_a_name(server: RecordingServer) -> None:
    job = "0198c0de-0000-7000-8000-000000000001"
    punctual("audit", "firings", "--from", "1h30m", "--to", "5m", "--job", job, url=server.url)
    asked = parse_qs(urlsplit(server.requests[0].path).query)
    assert asked["job_id"] == [job]
    now = datetime.now(UTC)
    for name, ago in (("from", timedelta(minutes=90)), ("to", timedelta(minutes=5))):
        assert timedelta(0) <= now - ago - datetime.fromisoformat(asked[name][0]) < timedelta(minutes=1)


def test_a_word_that_is_no_time_is_wrong_usage() -> None:
    ended = punctual("audit", "firings", "--from", "soon")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "'soon' is not a time" in ended.stderr
    assert punctual("audit", "firings").returncode == 2


ATTEMPTS = "/api/v1/audit/attempts?from=2030-01-31T08%3A00%3A00Z"
KEPT = {"clean": True, "from": FROM, "to": TO, "attempts": 9, "peak": 0, "pruned_before": None, "differences": []}
BROKEN = KEPT | {
    "clean": False,
    "differences": [
        {"what": "over_job_limit", "execution_id": "E", "at": FROM, "active": 2, "limit": 1},
        {"what": "overlapping", "execution_id": "F", "at": FROM, "active": None, "limit": None},
    ],
}


def test_an_audit_of_attempts_that_found_nothing_is_a_table_and_code_0(server: RecordingServer) -> None:
    server.answer("GET", ATTEMPTS, KEPT)
    ended = punctual("audit", "attempts", "--from", FROM, url=server.url)
    assert (ended.returncode, ended.stderr) == (0, "Every promise was kept.\n")
    assert {"attempts\t9", "peak\t0"} <= set(ended.stdout.splitlines())


def test_broken_promises_are_listed_and_code_1(server: RecordingServer) -> None:
    server.answer("GET", ATTEMPTS, BROKEN)
    ended = punctual("audit", "attempts", "--from", FROM, url=server.url)
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-3:] == [
        "DIFFERENCE\tEXECUTION\tAT\tACTIVE\tLIMIT",
        f"over_job_limit\tE\t{FROM}\t2\t1",
        f"overlapping\tF\t{FROM}\t\t",
    ]
    as_json = punctual("audit", "attempts", "--from", FROM, "-o", "json", url=server.url)
    assert (as_json.returncode, json.loads(as_json.stdout)) == (1, BROKEN)


ENTRY = {
    "id": "0198c0de-0000-7000-8000-000000000002", "at": FROM, "actor": "ada", "token": "laptop", "token_id": None,
    "via": "cli", "address": "198.51.100.7", "action": "job.edited", "object_type": "job", "object_id": "7",
    "object_name": "night\x1b[31mly", "owner": "ada", "before": {"priority": 5, "note": "x"},
    "after": {"priority": 9, "env.A": ""},
}  # fmt: skip


def test_changes_are_one_line_each_across_pages(server: RecordingServer) -> None:
    first = f"/api/v1/audit?actor=ada&object_type=job&object_id=7&from={FROM.replace(':', '%3A')}&limit=50"
    server.answer("GET", first, {"results": [ENTRY], "next": f"{first}&cursor=c"})
    rest = "/api/v1/audit?actor=ada&object_type=job&object_id=7&from=2030-01-31T08%3A00%3A00Z&limit=50&cursor=c"
    server.answer("GET", rest, {"results": [ENTRY | {"before": {}, "after": {}}], "next": None})
    options = ("--actor", "ada", "--action", "job", "--object", "7", "--since", FROM)
    ended = punctual("audit", "changes", *options, url=server.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    titles, line, bare = ended.stdout.splitlines()
    assert titles.split("\t") == ["AT", "WHO", "ACTION", "NAME", "WHAT CHANGED"]
    assert line.split("\t")[1:3] == ["ada", "job.edited"]
    assert line.endswith('\tpriority: 5 → 9, note: x → (gone), env.A: ""')
    assert bare.endswith("\t")
    assert "\x1b" not in ended.stdout, "what a stranger named does not steer the terminal"


def test_an_action_may_be_named_in_full_and_data_is_the_answer_itself(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/audit?action=job.edited&limit=1", {"results": [ENTRY], "next": "/?cursor=c"})
    ended = punctual("audit", "changes", "--action", "job.edited", "--limit", "1", "-o", "json", url=server.url)
    assert json.loads(ended.stdout) == [ENTRY]
    wide = punctual("audit", "changes", "--action", "job.edited", "--limit", "1", "-o", "wide", url=server.url)
    assert wide.stdout.splitlines()[1].split("\t")[5:] == ["cli", "198.51.100.7", "laptop", "ada", "7"]
