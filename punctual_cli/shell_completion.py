"""Typer's completion, corrected for any path to the command and for options with `=`."""

from __future__ import annotations

import sys

from typer._click.shell_completion import CompletionItem, ShellComplete, add_completion_class
from typer._completion_classes import BashComplete, FishComplete, ZshComplete, completion_init
from typer._completion_shared import get_completion_script

# The name that a script of Typer calls, and the command as the user typed it: by a path, and with a tilde.
_TYPED_COMMAND = {
    "bash": (" $1 )", ' "${1/#\\~/$HOME}" )'),
    "zsh": ("complete_zsh punctual", "complete_zsh ${~${(Q)words[1]}}"),
    "fish": (
        "(commandline -cp) punctual",
        r"(commandline -cp) (string replace --regex '^~/' ~/ -- (commandline -opc)[1])",
    ),
}


def completion_script(shell: str, variable: str) -> str:
    script = get_completion_script(prog_name="punctual", complete_var=variable, shell=shell)
    return script.replace(*_TYPED_COMMAND[shell])


class _WholeWords(ShellComplete):
    """Completes `--option=v` as a whole, since that is the word that the shell replaces."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        name, equals, _ = incomplete.partition("=")
        prefix = name + equals if equals and name.startswith("--") else ""
        found = super().get_completions(args, incomplete)
        return [CompletionItem(prefix + item.value, item.type, item.help) for item in found]


class _Bash(_WholeWords, BashComplete):
    """Undoes bash's splitting of words at `=`: options are separated from their values, other words rejoined."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        return rejoin_split_words(words), incomplete


class _Zsh(_WholeWords, ZshComplete):
    pass


class _Fish(_WholeWords, FishComplete):
    pass


def rejoin_split_words(words: list[str]) -> list[str]:
    joined: list[str] = []
    pending = False
    for word in words:
        if word == "=" and joined:
            pending = not joined[-1].startswith("--")
            joined[-1] += "=" if pending else ""
        elif pending:
            joined[-1] += word
            pending = False
        else:
            joined.append(word)
    return joined


def register_shells() -> None:
    # Typer would import rich to remove markup from help texts, which have none.
    sys.modules["rich"] = None  # type: ignore[assignment]
    completion_init()
    add_completion_class(_Bash, "bash")
    add_completion_class(_Zsh, "zsh")
    add_completion_class(_Fish, "fish")
