"""What a word that is being typed in a shell may become: commands, options, their values, and names that are known.

It must never be in the way: without a server, or with one that is slow, it offers nothing and says nothing.
Names are written by others and land in a shell, so only those that are plain words are offered. What was typed is
walked through here and not parsed as for a run of the command, which would read twice as much to check values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from cli.errors import CliError
from cli.profiles import LOCAL, path_of, read_profiles

if TYPE_CHECKING:
    from typer._click import Command, Parameter

# The first word of what a shell asks; then come its name and the words that were typed, the last as far as it is.
ASKED = "__complete"
PATIENCE_SECONDS = 0.5
MOST_NAMES = 50
# What ./punctual hands to others than this command line.
ELSEWHERE = {
    "up": "Start the local stack",
    "down": "Stop the local stack",
    "stack": "Look at the local stack",
    "worker": "Work for a server on another machine",
    "test": "Check this checkout",
}
STACK = {"status": "Show its processes", "logs": "Show their logs", "manage": "Run a command of Django's"}
_PLAIN = re.compile(r"[\w.@%+=,/-]+", re.ASCII)

Offers = Iterator[tuple[str, str]]


def answer(root: Command, shell: str, words: Sequence[str]) -> Iterator[str]:
    """The lines that a shell is answered: words that may be meant, each with what is said of it where that is shown."""
    *before, begun = (_rejoin(words) if shell == "bash" else words) or [""]
    name, equals, _ = begun.partition("=")
    # fish completes the whole word; the others take what stands behind the sign for a word of its own.
    prefix = name + equals if shell == "fish" and equals and name.startswith("--") else ""
    for word, said in offer(root, before, begun):
        yield word if shell == "bash" else f"{prefix}{word}\t{' '.join(said.split())}"


def offer(root: Command, before: Sequence[str], begun: str) -> Offers:
    """What the word may become that comes after those before; each with a sentence, or none."""
    if before and before[0] in ELSEWHERE:
        yield from _of(STACK, begun if list(before) == ["stack"] else None)
        return
    if not before:
        yield from _of(ELSEWHERE, begun)
    line = Line(root)
    for word in before:
        line.take(word)
    yield from line.offer(begun)


class Line:
    """How far a command line has come: which command is meant, and what its next word is."""

    def __init__(self, root: Command) -> None:
        self.lost = False
        self._enter(root, None)

    def _enter(self, command: Command, parent: typer.Context | None) -> None:
        self.command = command
        self.context = typer.Context(command, parent=parent, resilient_parsing=True)
        parameters = command.get_params(self.context)
        self.options = {
            name: each
            for each in parameters
            if isinstance(each, TyperOption) and not each.hidden
            for name in (*each.opts, *each.secondary_opts)
        }
        self.arguments = [each for each in parameters if isinstance(each, TyperArgument)]
        self.given: set[TyperOption] = set()
        self.valued: TyperOption | None = None  # whose value comes next
        self.only_arguments = False

    def take(self, word: str) -> None:
        if self.valued is not None:
            self._give(self.valued, word)
        elif word == "--":
            self.only_arguments = True
        elif self._is_option(word):
            name, equals, value = word.partition("=")
            option = self.options.get(name)
            if option is not None and equals:
                self._give(option, value)
            elif option is not None:
                self.given.add(option)
                self.valued = None if option.is_flag else option
        elif isinstance(self.command, TyperGroup):
            _, command, _ = self.command.resolve_command(self.context, [word])
            self.lost = command is None
            if command is not None:
                self._enter(command, self.context)
        elif self.arguments and self.arguments[0].nargs == 1:
            self.arguments.pop(0)

    def _give(self, option: TyperOption, value: str) -> None:
        self.given.add(option)
        self.valued = None
        if option.callback is not None:
            # Which server the names are asked of.
            option.callback(self.context, option, value)

    def _is_option(self, word: str) -> bool:
        return word.startswith("-") and len(word) > 1 and not self.only_arguments

    def offer(self, begun: str) -> Offers:
        name, equals, value = begun.partition("=")
        if self.lost:
            return
        if self.valued is not None:
            yield from self._values(self.valued, begun)
        elif equals and name in self.options:
            yield from self._values(self.options[name], value)
        elif begun.startswith("-") and not self.only_arguments:
            left = {name: each for name, each in self.options.items() if each.multiple or each not in self.given}
            yield from _of({name: each.help or "" for name, each in left.items()}, begun)
        elif isinstance(self.command, TyperGroup):
            found = {name: each.get_short_help_str() for name, each in self.command.commands.items()}
            yield from _of(found, begun)
        elif self.arguments:
            yield from self._values(self.arguments[0], begun)

    def _values(self, of: Parameter, begun: str) -> Offers:
        # A file that is meant is the shell's to find.
        found = of.shell_complete(self.context, begun)
        yield from ((item.value, item.help or "") for item in found if item.type == "plain")


def _of(words: dict[str, str], begun: str | None) -> Offers:
    yield from ((word, said) for word, said in words.items() if begun is not None and word.startswith(begun))


def _rejoin(words: Sequence[str]) -> list[str]:
    """bash breaks words at `=`: what was typed as one becomes one."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and (word == "=" or joined[-1].endswith("=")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def job_names(incomplete: str) -> list[str]:
    from cli.client import Client  # noqa: PLC0415  which takes time to read, and completing a command does not need

    try:
        with Client(timeout_seconds=PATIENCE_SECONDS) as client:
            found = client.jobs(search=incomplete or None, limit=MOST_NAMES)
    except CliError:
        return []
    names = [job.name for job in found if job.name.startswith(incomplete) and _PLAIN.fullmatch(job.name)]
    return list(dict.fromkeys(names))


def profile_names(incomplete: str) -> list[str]:
    known: list[str] = []
    with suppress(CliError):
        known = sorted(read_profiles(path_of(os.environ)).known)
    return [name for name in (*known, LOCAL) if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
