"""Output of all commands: fitting tables, wide ones, JSON and YAML."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from punctual_cli.output.results import Format, flatten, write_data, write_resource
from punctual_cli.output.tables import MIN_COLUMN_WIDTH, choose_column_widths, fit_widths, shorten_time, truncate_cell
from tests.support.terminal import run_on_terminal
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual
from tests.unit.punctual_cli.whole import whole_tree

COMMANDS = Path(__file__).resolve().parents[3] / "punctual_cli" / "commands"
IDENTIFIER = "0198c0de-0000-7000-8000-000000000001"
JOB: dict[str, object] = {
    "id": IDENTIFIER, "name": "the-nightly-report-of-all-that-was-sold-in-europe-and-elsewhere", "status": "scheduled",
    "owner": "an\x1b[2Jna", "queue": "default", "schedules": [{"in_words": "every day", "next_instant": None}],
}  # fmt: skip


def on_a_terminal(*words: str, url: str, columns: int, **environment: str) -> str:
    """Return what the command writes to a terminal of that width."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    ended, shown = run_on_terminal(
        [sys.executable, "-m", "punctual_cli", *words],
        "stdin",
        "stdout",
        columns=columns,
        environment=kept | {"TERM": "xterm", "PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": "t"} | environment,
    )
    assert ended.returncode == 0, ended.stderr
    return shown


@pytest.mark.parametrize("columns", [60, 100])
def test_a_list_fits_the_terminal_and_keeps_ids_whole(server: RecordingServer, columns: int) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": [JOB], "next": None})
    shown = on_a_terminal("jobs", url=server.url, columns=columns)
    head, row = shown.splitlines()
    assert "\x1b[1m" in head
    assert row.startswith(f"{IDENTIFIER} the")
    assert cell_len(row) <= columns
    assert "…" in row


@pytest.mark.parametrize(
    ("columns", "titles"),
    [
        (30, ["ID"]),
        (60, ["ID", "JOB", "STATUS"]),
        (80, ["ID", "JOB", "STATUS", "EXIT", "STARTED"]),
        (120, ["ID", "JOB", "STATUS", "PROGRESS", "ATTEMPT", "EXIT", "STARTED", "ENDED"]),
    ],
)
def test_a_narrow_terminal_drops_columns(server: RecordingServer, columns: int, titles: list[str]) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    execution = {
        "id": IDENTIFIER, "job_id": "J", "job_name": JOB["name"], "status": "succeeded", "attempt": 1, "exit_code": 0,
        "started_at": yesterday.isoformat(), "ended_at": yesterday.isoformat(), "progress": {"percent": 100},
    }  # fmt: skip
    server.answer("GET", "/api/v1/executions?limit=50", {"results": [execution], "next": None})
    head, row = on_a_terminal("--no-color", "executions", url=server.url, columns=columns).splitlines()
    assert head.split() == titles
    cells = dict(zip(titles, row.split(), strict=False))
    assert cells["ID"] == IDENTIFIER
    assert cells.get("STATUS", "succeeded") == "succeeded"
    assert "STARTED" not in titles or f"{yesterday:%m-%d %H:%M}Z" in row or f"{yesterday:%Y-%m-%d}" in row
    assert cell_len(row) <= max(columns, len(IDENTIFIER))


def test_a_title_is_never_cut(server: RecordingServer) -> None:
    worker = {
        "id": IDENTIFIER, "name": "alpha", "status": "online", "host": "alpha.example", "pool": "default", "slots": 8,
        "capabilities": [f"something-{number}" for number in range(30)],
    }  # fmt: skip
    server.answer("GET", "/api/v1/workers?limit=100", {"results": [worker], "next": None})
    heads = [
        on_a_terminal("--no-color", "workers", url=server.url, columns=columns).splitlines()[0].split()
        for columns in (60, 80, 200)
    ]
    assert heads[0] == ["ID", "NAME", "STATUS", "SLOTS"]
    assert heads[1] == ["ID", "NAME", "STATUS", "POOL", "SLOTS", "LOAD"]
    assert heads[2] == ["ID", "NAME", "STATUS", "HOST", "POOL", "SLOTS", "LOAD", "CAPABILITIES"]


def test_a_wide_list_has_all_columns_and_cuts_nothing(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": [JOB], "next": None})
    head, row = on_a_terminal("--no-color", "jobs", "-o", "wide", url=server.url, columns=60).splitlines()
    assert head.split()[:4] == ["ID", "NAME", "STATUS", "NEXT"]
    assert "\x1b" not in head
    for words in (IDENTIFIER, str(JOB["name"]), "an\\x1b[2Jna", "default", "every day"):
        assert words in row


def test_no_colour_is_shown_where_none_is_wanted(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": [JOB], "next": None})
    assert "\x1b" not in on_a_terminal("jobs", url=server.url, columns=100, NO_COLOR="1")


def test_a_changed_resource_is_printed_in_the_requested_format(server: RecordingServer) -> None:
    server.answer("POST", f"/api/v1/jobs/{IDENTIFIER}/pause", JOB)
    quiet = punctual("pause", IDENTIFIER, "--note", "moving", url=server.url)
    assert (quiet.returncode, quiet.stdout) == (0, "")
    assert json.loads(server.requests[0].body) == {"note": "moving"}
    told = punctual("pause", IDENTIFIER, "-o", "yaml", url=server.url)
    assert yaml.safe_load(told.stdout) == JOB


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_json_and_yaml_say_the_same_in_ascii(value: object) -> None:
    import contextlib
    import io

    for output, read in ((Format.JSON, json.loads), (Format.YAML, yaml.safe_load)):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            write_data([value, value], output)
        text = printed.getvalue()
        assert text.isascii()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
        assert read(text) == [value, value]
        assert output is Format.JSON or "&id" not in text


def test_yaml_is_written_in_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    write_resource({"script": "echo a\necho b\n", "args": ["no", "1"], "at": "2030-01-01"}, Format.YAML)
    assert capsys.readouterr().out == "script: |\n  echo a\n  echo b\nargs:\n- 'no'\n- '1'\nat: '2030-01-01'\n"


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(1, 250))
def test_widths_shrink_until_they_fit_and_no_further(widths: list[int], room: int) -> None:
    fitted = list(fit_widths(dict(enumerate(widths)), room, [0]).values())
    taken = sum(fitted) + len(fitted) - 1
    assert fitted[0] == widths[0]
    assert all(min(wide, MIN_COLUMN_WIDTH) <= narrow <= wide for narrow, wide in zip(fitted, widths, strict=True))
    assert taken <= room or all(width <= MIN_COLUMN_WIDTH for width in fitted[1:])
    assert fitted == widths or taken >= room


@given(st.text(st.characters(exclude_categories=["C", "Z", "M"])), st.integers(1, 30))
def test_a_cut_cell_has_the_requested_width(text: str, width: int) -> None:
    assert cell_len(truncate_cell(text, width)) <= width
    if cell_len(text) <= width:
        assert truncate_cell(text, width) == text


def test_a_name_keeps_both_ends_and_a_sentence_its_beginning() -> None:
    assert truncate_cell("nightly-report-europe", 11) == "night…urope"
    assert truncate_cell("no worker is free", 11) == "no worker…"


@pytest.mark.parametrize(
    ("time", "short"),
    [
        ("2026-11-16 23:27:06Z", "23:27:06Z"),
        ("2026-11-15 23:27:06Z", "11-15 23:27Z"),
        ("2025-11-16 23:27:06Z", "2025-11-16"),
        ("2026-11-17 00:27:06+01:00", "11-17 00:27+01:00"),
        ("revoked 2025-11-16 23:27:06Z", "revoked 2025-11-16"),
        ("at 2026-11-16", "at 2026-11-16"),
    ],
)
def test_times_are_shortened_relative_to_today(time: str, short: str) -> None:
    assert shorten_time(time, date(2026, 11, 16)) == short


def test_empty_columns_are_dropped_first_then_by_drop_order() -> None:
    titles, rows = ["ID", "PROGRESS", "ATTEMPT", "EXIT"], [["abc", "", "1", "0"], ["de", "", "12", "1"]]
    going = [2, 3, 1]
    assert choose_column_widths(titles, rows, 40, [0], going) == {0: 3, 1: 8, 2: 7, 3: 4}
    assert choose_column_widths(titles, rows, 18, [0], going) == {0: 3, 2: 7, 3: 4}
    assert choose_column_widths(titles, rows, 15, [0], going) == {0: 3, 3: 4}
    assert choose_column_widths(titles, rows, 2, [0], going) == {0: 3}
    assert choose_column_widths(titles, [], 9, [0], going) == {0: 2}


def test_fields_are_flattened_without_the_empty_ones() -> None:
    assert flatten({"a": {"b": 1, "c": None}, "d": [{"e": "x"}], "f": ""}) == {"a.b": "1", "d.0.e": "x"}


def test_an_empty_argument_or_variable_is_one_like_the_others() -> None:
    assert flatten({"args": ["", "x"], "env": {"A": ""}, "schedules": [{"error": ""}]}) == {
        "args.0": "",
        "args.1": "x",
        "env.A": "",
    }


def test_commands_print_only_through_the_output_modules() -> None:
    """A format that one command forgets is one that nobody can rely on."""
    own = {path.name for path in COMMANDS.glob("*.py") if re.search(r"\bjson\.dumps|Format\.JSON:", path.read_text())}
    assert own == set()


UNFORMATTED = {
    "completion": "a script for a shell",
    "logs": "what a program wrote, as it is",
    "login": "a sentence",
    "logout": "a sentence",
    "profiles use": "a sentence",
    "tokens revoke": "a sentence",
    "delete": "a sentence",
    "artifacts delete": "a sentence",
    "outputs delete": "a sentence",
    "secrets delete": "a sentence",
    "webhooks delete": "a sentence",
}


def test_every_command_that_prints_a_result_takes_a_format() -> None:
    assert set(_without_format(whole_tree(), ())) == set(UNFORMATTED)


def _without_format(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    prints = not inner or (path and command.invoke_without_command)
    if prints and not any("--output" in parameter.opts for parameter in command.params):
        yield " ".join(path)
    for name, each in inner.items():
        yield from _without_format(each, (*path, name))
