"""Output to the terminal: results on stdout, messages on stderr.

Jobs choose names and write logs, so their control characters are escaped on a terminal. In a pipe or a file a log is
copied byte for byte.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from punctual_client.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

# Cc: control, Cf: text direction marks, Cs: surrogates, Zl and Zp: line breaks.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")


def escape_control_characters(text: str, *, keep: str = "") -> str:
    """Escape every character that a terminal would interpret."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(character)
        if character not in keep and character not in _JOINERS and _is_unsafe(character)
        else character
        for character in text
    )


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in _UNSAFE_CATEGORIES


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def write_message(message: str) -> None:
    """Print one line on stderr, since stdout is for results."""
    print(escape_control_characters(" ".join(message.split())), file=sys.stderr, flush=True)


def confirm(question: str, *, yes: bool, stdin_is_data: bool = False) -> None:
    """Ask for confirmation, unless --yes was given; without a terminal to ask on, refuse.

    `stdin_is_data`: standard input is a pipe with data, so ask on the controlling terminal.
    """
    if yes:
        return
    if sys.stdin.isatty():
        typer.confirm(escape_control_characters(question), abort=True, err=True)
        return
    confirmed = _prompt_on_tty(question) if stdin_is_data else None
    if confirmed is None:
        raise UsageError("There is no terminal to ask on: use --yes to confirm.")
    if not confirmed:
        raise typer.Abort


def _prompt_on_tty(question: str) -> bool | None:
    """Ask on the controlling terminal; return None if there is none."""
    try:
        with open(os.ctermid(), "r+b", buffering=0) as terminal:  # unbuffered: a terminal cannot seek
            terminal.write(f"{escape_control_characters(question)} [y/N]: ".encode())
            return terminal.readline().strip().lower() in (b"y", b"yes")
    except OSError:
        return None


def console(*, wrap: bool = True, stderr: bool = False) -> Console:
    """Return a rich console; with NO_COLOR it is plain, where rich itself would keep bold and dim."""
    # Importing rich takes as long as a short command, and most commands do not need it.
    from rich.console import Console  # noqa: PLC0415

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(highlight=False, soft_wrap=not wrap, stderr=stderr, color_system=None if plain else "auto")


def write_result(text: str) -> None:
    print(escape_control_characters(text), flush=True)


def write_log(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(escape_control_characters(text.replace("\r\n", "\n"), keep="\n\t"))
    else:
        sys.stdout.buffer.write(text.encode("utf-8", errors="surrogatepass"))
    sys.stdout.flush()


def write_log_bytes(pieces: Iterable[bytes]) -> None:
    if not sys.stdout.isatty():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        return
    unfinished = b""
    for piece in pieces:
        # Write whole lines, so that no character and no CRLF is split.
        complete, separator, unfinished = (unfinished + piece).rpartition(b"\n")
        write_log((complete + separator).decode("utf-8", errors="replace"))
    write_log(unfinished.decode("utf-8", errors="replace"))


def format_time(instant: str | None) -> str:
    """Format `2030-01-31T09:00:00.123456Z` as `2030-01-31 09:00:00Z`."""
    if instant is None:
        return ""
    instant = instant.replace("+00:00", "Z")
    day, _, time_of_day = instant.partition("T")
    return f"{day} {time_of_day[:8]}{'Z' if instant.endswith('Z') else time_of_day[-6:]}"
