"""Control characters are escaped on a terminal; in a pipe logs are exact."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_cli.output.terminal import escape_control_characters, format_time
from tests.support.terminal import run_on_terminal
from tests.unit.punctual_cli.terminals import run_in_session

HOSTILE = "\x1b]0;owned\x07red\x1b[31m\x9b2J\rhidden\n\tend ü\n"
WRITE = f"from punctual_cli.output.terminal import write_log; write_log({HOSTILE!r})"
WRITE_BYTES = (
    "from punctual_cli.output.terminal import write_log_bytes; "
    f"write_log_bytes([{HOSTILE!r}.encode()[:3], {HOSTILE!r}.encode()[3:]])"
)


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    clean = escape_control_characters(text, keep="\n\t")
    assert not any(character < " " and character not in "\n\t" for character in clean)
    assert not any("\x7f" <= character <= "\x9f" for character in clean)
    clean.encode()


def test_ordinary_text_is_left_alone() -> None:
    assert escape_control_characters("naïve 日本語 👩\u200d🔬 [red]") == "naïve 日本語 👩\u200d🔬 [red]"


def test_a_control_character_is_shown() -> None:
    assert escape_control_characters("a\x1b[31m\u202e\n") == "a\\x1b[31m\\u202e\\x0a"


@pytest.mark.parametrize("program", [WRITE, WRITE_BYTES])
def test_a_pipe_gets_the_log_byte_for_byte(program: str) -> None:
    written = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=True)
    assert written.stdout == HOSTILE.encode()


@pytest.mark.parametrize("program", [WRITE, WRITE_BYTES])
def test_a_terminal_gets_no_control_characters(program: str) -> None:
    ended, shown = run_on_terminal([sys.executable, "-c", program], "stdout", environment=os.environ)
    assert ended.returncode == 0
    assert shown == "\\x1b]0;owned\\x07red\\x1b[31m\\x9b2J\\x0dhidden\n\tend ü\n"


ASK = "import sys; from punctual_cli.output.terminal import confirm; sys.stdin.read(); {}; print('done')"


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False)])
def test_with_data_on_stdin_the_terminal_is_asked(answer: str, done: bool) -> None:
    program = ASK.format("confirm('Go\\x1b?', yes=False, stdin_is_data=True)")
    ended = run_in_session(program, typed="data", answer=answer)
    assert ("done" in ended.stdout, ended.returncode == 0) == (done, done)
    assert "Go\\x1b? [y/N]: " in ended.asked


@pytest.mark.parametrize(("stdin_is_data", "answer"), [(True, None), (False, "y\n")])
def test_without_a_terminal_or_piped_data_confirmation_is_refused(stdin_is_data: bool, answer: str | None) -> None:
    program = ASK.format(f"confirm('Go?', yes=False, stdin_is_data={stdin_is_data})")
    ended = run_in_session(program, typed="", answer=answer)
    assert "There is no terminal to ask on: use --yes to confirm." in ended.stderr
    assert "Go?" not in ended.asked


def test_times_are_shown_to_the_second_with_their_offset() -> None:
    assert format_time("2030-01-31T09:00:00.123456Z") == "2030-01-31 09:00:00Z"
    assert format_time("2030-01-31T09:00:00+01:00") == "2030-01-31 09:00:00+01:00"
    assert format_time("2030-01-31T09:00:00.12+00:00") == "2030-01-31 09:00:00Z"
    assert format_time(None) == ""
