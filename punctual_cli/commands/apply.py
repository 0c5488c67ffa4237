"""`apply`: create and update jobs from a YAML file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from punctual_cli.app import app, connect
from punctual_cli.apply.applying import apply_plan, show_plan
from punctual_cli.apply.manifests import Manifest, read_manifest
from punctual_cli.apply.planning import make_plan
from punctual_cli.apply.yaml_reading import MAX_FILE_BYTES
from punctual_cli.commands.options import FormatOption
from punctual_cli.output.results import Format
from punctual_client.errors import UsageError


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of jobs; - for standard input.")],
    plan: Annotated[bool, typer.Option("--plan", help="Only show the changes.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Create the jobs of FILE that do not exist, update the ones that differ, and leave all others alone.

    Shows the plan first: each changed field and the next instants.
    """
    manifest = _read_manifest_file(file)
    with connect() as client:
        planned = make_plan(client, manifest)
        show_plan(planned, output)
        if not plan:
            apply_plan(client, planned)


def _read_manifest_file(file: Path) -> Manifest:
    if str(file) == "-":
        return read_manifest(read_bounded(file), "<stdin>", Path())
    return read_manifest(read_bounded(file), str(file), file.parent)


def read_bounded(file: Path) -> bytes:
    """Read a file or standard input up to one byte beyond the limit, so that its parser can refuse it."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        with file.open("rb") as opened:
            return opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}.") from None
