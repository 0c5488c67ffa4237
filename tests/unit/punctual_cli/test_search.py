"""`search` as a process: paged requests and output."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

ADDRESS = "/api/v1/logs/search?q=disk+full&mode=words&limit=50"
NEXT = "/api/v1/logs/search?q=disk+full&mode=words&limit=50&cursor=c"
LINE = {
    "execution_id": "E",
    "job_name": "nightly\x1b[2J",
    "attempt": 2,
    "stream": "stderr",
    "at": "2030-01-31T09:00:00.5Z",
    "line": "\x1b[31mDisk full\x07",
    "matches": [[5, 14]],
}


def page(*lines: dict[str, Any], following: str | None = None, complete: bool = True) -> dict[str, object]:
    return {"results": list(lines), "next": following, "complete": complete, "indexed_to": None}


def test_lines_are_printed_harmlessly_over_several_answers(server: RecordingServer) -> None:
    server.answer("GET", ADDRESS, page(following=NEXT, complete=False))
    server.answer("GET", NEXT, page(LINE))
    ended = punctual("search", "disk full", url=server.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "2030-01-31 09:00:00Z nightly\\x1b[2J E#2 stderr: \\x1b[31mDisk full\\x07\n"


def test_an_empty_result_prints_a_message(server: RecordingServer) -> None:
    server.answer("GET", ADDRESS, page())
    ended = punctual("search", "disk full", url=server.url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "No line matches.\n")


def test_options_become_parameters_and_json_is_the_lines(server: RecordingServer) -> None:
    job, words = "0198c0de-0000-7000-8000-000000000001", ("--substring", "--stream", "stderr", "--limit", "3")
    punctual("search", "x_y", *words, "--job", job, "--to", "2030-01-31T09:00Z", url=server.url)
    assert parse_qs(urlsplit(server.requests[0].path).query) == {
        "q": ["x_y"],
        "mode": ["substring"],
        "limit": ["3"],
        "job_id": [job],
        "to": ["2030-01-31T09:00:00Z"],
        "stream": ["stderr"],
    }
    server.answer("GET", ADDRESS, page(LINE))
    assert json.loads(punctual("search", "disk full", "-o", "json", url=server.url).stdout) == [LINE]


def test_a_word_that_is_no_time_is_wrong_usage() -> None:
    assert punctual("search", "x", "--since", "soon").returncode == 2
    assert punctual("search", "x", "--from", "soon").returncode == 2
