"""`completion`, and the names that options complete: jobs and profiles.

Completing must never disturb the prompt: without a server, or with a slow one, no names are offered. Other users chose
the names and the shell will read them, so only plain words are offered.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer

from punctual_cli.app import app
from punctual_client.errors import PROGRAM, PunctualError
from punctual_client.profiles import LOCAL_PROFILE, profiles_path, read_profiles

# The variable through which the generated scripts ask this program for candidates.
COMPLETE_VARIABLE = "_PUNCTUAL_COMPLETE"
SERVER_TIMEOUT_SECONDS = 0.5
MAX_JOB_NAMES = 50
_PLAIN_WORD = re.compile(r"[\w.@%+=,/-]+", re.ASCII)


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(
    epilog=f"""\b
bash: eval "$({PROGRAM} completion bash)"   in ~/.bashrc
zsh:  eval "$({PROGRAM} completion zsh)"    in ~/.zshrc, after compinit
fish: {PROGRAM} completion fish | source    in ~/.config/fish/config.fish"""
)
def completion(shell: Annotated[Shell, typer.Argument(help="The shell to print the script for.")]) -> None:
    """Print a script that completes commands, options, their values and the names of jobs."""
    from punctual_cli.shell_completion import completion_script  # noqa: PLC0415  only this command needs it

    typer.echo(completion_script(shell.value, COMPLETE_VARIABLE))


def complete_job_name(incomplete: str) -> list[str]:
    from punctual_client.client import Client  # noqa: PLC0415  slow to import, and only names need it

    try:
        with Client(timeout_seconds=SERVER_TIMEOUT_SECONDS) as client:
            jobs = client.jobs(search=incomplete or None, limit=MAX_JOB_NAMES)
    except PunctualError:
        return []
    names = [job.name for job in jobs if job.name.startswith(incomplete) and _PLAIN_WORD.fullmatch(job.name)]
    return list(dict.fromkeys(names))


def complete_profile_name(incomplete: str) -> list[str]:
    known: list[str] = []
    with suppress(PunctualError):
        known = sorted(read_profiles(profiles_path(os.environ)).known)
    return [name for name in (*known, LOCAL_PROFILE) if name.startswith(incomplete) and _PLAIN_WORD.fullmatch(name)]
