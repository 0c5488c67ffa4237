"""`apply`: jobs become what a file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.app import app, connect
from cli.applying import apply_plan, show_plan
from cli.commands.options import FormatOption
from cli.errors import UsageMistakeError
from cli.manifests import Manifest, read_manifest
from cli.planning import make_plan
from cli.results import Format
from cli.yaml_reading import MOST_BYTES


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of jobs in YAML; - is standard input.")],
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would change.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make the jobs of FILE what it says: create what is not there, change what differs, leave the rest.

    Shows the plan, field by field, and the next firings. Jobs that are not in the file are left alone.
    """
    manifest = _read(file)
    with connect() as client:
        planned = make_plan(client, manifest)
        show_plan(planned, output)
        if not plan:
            apply_plan(client, planned)


def _read(file: Path) -> Manifest:
    if str(file) == "-":
        return read_manifest(read_bounded(file), "<stdin>", Path())
    return read_manifest(read_bounded(file), str(file), file.parent)


def read_bounded(file: Path) -> bytes:
    """One byte more than may be: whoever parses it says so."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageMistakeError(f"{file} cannot be read: {error.strerror or error}.") from None
