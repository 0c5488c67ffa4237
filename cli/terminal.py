"""What reaches the terminal: results on stdout, sentences on stderr.

Names and logs are written by jobs; no control character of theirs reaches a terminal. Into a pipe or a
file a log goes byte for byte.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from cli.errors import UsageMistakeError

if TYPE_CHECKING:
    from rich.console import Console

# Cc: control, Cf: marks that turn the direction of text, Cs: halves of characters, Zl and Zp: line breaks.
_HOSTILE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")


def neutralise(text: str, *, keep: str = "") -> str:
    """The text with every character that could steer a terminal shown instead of obeyed."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _shown(character)
        if character not in keep and character not in _JOINERS and _is_hostile(character)
        else character
        for character in text
    )


def _is_hostile(character: str) -> bool:
    return unicodedata.category(character) in _HOSTILE_CATEGORIES


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def say(sentence: str) -> None:
    """One line for the person, on stderr: stdout is for results."""
    print(neutralise(" ".join(sentence.split())), file=sys.stderr, flush=True)


def confirm(question: str, *, yes: bool, stdin_is_data: bool = False) -> None:
    """Goes on if the person says so; without a person to ask, only if they said so beforehand.

    `stdin_is_data`: a pipe into the command does not mean that nobody is there, and the terminal itself is asked.
    """
    if yes:
        return
    if sys.stdin.isatty():
        typer.confirm(neutralise(question), abort=True, err=True)
        return
    agreed = _ask_terminal(question) if stdin_is_data else None
    if agreed is None:
        raise UsageMistakeError("There is nobody to ask: say --yes if you mean it.")
    if not agreed:
        raise typer.Abort


def _ask_terminal(question: str) -> bool | None:
    """None: this process has no terminal, or it is gone."""
    try:
        with open(os.ctermid(), "r+b", buffering=0) as terminal:  # unbuffered: a terminal cannot be sought in
            terminal.write(f"{neutralise(question)} [y/N]: ".encode())
            return terminal.readline().strip().lower() in (b"y", b"yes")
    except OSError:
        return None


def console(*, wrap: bool = True, stderr: bool = False) -> Console:
    """Without NO_COLOR as rich understands it, which would leave bold and dim: whoever sets it wants plain text."""
    # Reading it takes as long as the rest of a short command, and most commands print nothing that is drawn.
    from rich.console import Console  # noqa: PLC0415

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(highlight=False, soft_wrap=not wrap, stderr=stderr, color_system=None if plain else "auto")


def write_result(text: str) -> None:
    print(neutralise(text), flush=True)


def write_log(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(neutralise(text.replace("\r\n", "\n"), keep="\n\t"))
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
        # Whole lines only, so that no character and no line end is cut in two.
        complete, separator, unfinished = (unfinished + piece).rpartition(b"\n")
        write_log((complete + separator).decode("utf-8", errors="replace"))
    write_log(unfinished.decode("utf-8", errors="replace"))


def shown_time(instant: str | None) -> str:
    """`2030-01-31T09:00:00.123456Z` as `2030-01-31 09:00:00Z`."""
    if instant is None:
        return ""
    instant = instant.replace("+00:00", "Z")
    day, _, time_of_day = instant.partition("T")
    return f"{day} {time_of_day[:8]}{'Z' if instant.endswith('Z') else time_of_day[-6:]}"
