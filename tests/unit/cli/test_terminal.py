"""Nothing a job wrote can steer a terminal; into a pipe its bytes go as they are."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.terminal import neutralise, shown_time
from tests.unit.cli.terminals import run_in_session

HOSTILE = "\x1b]0;owned\x07red\x1b[31m\x9b2J\rhidden\n\tend ü\n"
WRITE = f"from cli.terminal import write_log; write_log({HOSTILE!r})"
WRITE_BYTES = (
    f"from cli.terminal import write_log_bytes; write_log_bytes([{HOSTILE!r}.encode()[:3], {HOSTILE!r}.encode()[3:]])"
)


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    clean = neutralise(text, keep="\n\t")
    assert not any(character < " " and character not in "\n\t" for character in clean)
    assert not any("\x7f" <= character <= "\x9f" for character in clean)
    clean.encode()


def test_ordinary_text_is_left_alone() -> None:
    assert neutralise("naïve 日本語 👩\u200d🔬 [red]") == "naïve 日本語 👩\u200d🔬 [red]"


def test_a_control_character_is_shown() -> None:
    assert neutralise("a\x1b[31m\u202e\n") == "a\\x1b[31m\\u202e\\x0a"


@pytest.mark.parametrize("program", [WRITE, WRITE_BYTES])
def test_a_pipe_gets_the_log_byte_for_byte(program: str) -> None:
    written = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=True)
    assert written.stdout == HOSTILE.encode()


@pytest.mark.parametrize("program", [WRITE, WRITE_BYTES])
def test_a_terminal_gets_no_control_characters(program: str) -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", program], stdout=theirs, timeout=30, check=True)
    os.close(theirs)
    seen = b""
    # Reading a terminal that nobody holds any more ends with an error instead of an end.
    with suppress(OSError):
        while piece := os.read(ours, 4096):
            seen += piece
    os.close(ours)
    # The terminal itself turns the end of a line into two characters.
    text = seen.decode().replace("\r\n", "\n")
    assert text == "\\x1b]0;owned\\x07red\\x1b[31m\\x9b2J\\x0dhidden\n\tend ü\n"


ASK = "import sys; from cli.terminal import confirm; sys.stdin.read(); {}; print('done')"


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False)])
def test_where_standard_input_is_the_data_the_terminal_is_asked(answer: str, done: bool) -> None:
    program = ASK.format("confirm('Go\\x1b?', yes=False, stdin_is_data=True)")
    ended = run_in_session(program, typed="data", answer=answer)
    assert ("done" in ended.stdout, ended.returncode == 0) == (done, done)
    assert "Go\\x1b? [y/N]: " in ended.asked


@pytest.mark.parametrize(("stdin_is_data", "answer"), [(True, None), (False, "y\n")])
def test_without_a_terminal_or_where_nothing_was_piped_nobody_is_asked(stdin_is_data: bool, answer: str | None) -> None:
    program = ASK.format(f"confirm('Go?', yes=False, stdin_is_data={stdin_is_data})")
    ended = run_in_session(program, typed="", answer=answer)
    assert "There is nobody to ask: say --yes if you mean it." in ended.stderr
    assert "Go?" not in ended.asked


def test_times_are_shown_to_the_second_with_their_offset() -> None:
    assert shown_time("2030-01-31T09:00:00.123456Z") == "2030-01-31 09:00:00Z"
    assert shown_time("2030-01-31T09:00:00+01:00") == "2030-01-31 09:00:00+01:00"
    assert shown_time("2030-01-31T09:00:00.12+00:00") == "2030-01-31 09:00:00Z"
    assert shown_time(None) == ""
