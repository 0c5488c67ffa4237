"""`completion`: what a shell reads to complete commands, options and the names of jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.app import app
from cli.shell_scripts import Shell, script_for


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="The shell that is to read it.")]) -> None:
    """Print a script that completes words; for bash: `eval "$(./punctual completion bash)"` in ~/.bashrc."""
    typer.echo(script_for(shell), nl=False)
