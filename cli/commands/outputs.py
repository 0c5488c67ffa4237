"""`outputs`: the files that an execution left behind.

A file gets its name only when its size and its hash are those the server stated, and never outside the
folder that was asked for, whatever the job called it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import check_execution_id, connect, group
from cli.attempt_notes import warn_of_last
from cli.commands.options import AnswerOption, ExecutionArgument, FormatOption, YesOption
from cli.errors import ClientError, CliError, UsageMistakeError
from cli.progress import DOWNLOADS
from cli.results import Column, Format, field, write_list
from cli.storage_records import Output
from cli.terminal import confirm, say, write_result
from cli.values import safe_output_path

if TYPE_CHECKING:
    from cli.client import Client

outputs = group("outputs", help="List, fetch and delete the files that an execution left in out/.")

COLUMNS: tuple[Column[Output], ...] = (
    Column("NAME", field("name"), whole=True),
    Column("SIZE", field("size")),
    Column("SHA256", field("sha256")),
)
FETCHED_COLUMNS: tuple[Column[Output], ...] = (*COLUMNS, Column("PATH", field("path"), whole=True))


@outputs.command(name="list")
def list_outputs(execution: ExecutionArgument, output: FormatOption = Format.TABLE) -> None:
    """List the output files of an execution."""
    with connect() as client:
        found = client.outputs(check_execution_id(execution))
        write_list(found, COLUMNS, output, nothing="It has no output files: what a program leaves in out/ is kept.")
        warn_of_last(client, execution)


@outputs.command(name="get")
def get_outputs(
    execution: ExecutionArgument,
    name: Annotated[str | None, typer.Argument(help="One file. Default: all of them.")] = None,
    directory: Annotated[Path, typer.Option("--directory", "-d", metavar="DIRECTORY", help="Where to.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    output: AnswerOption = None,
) -> None:
    """Fetch output files. Prints the path of each."""
    with connect() as client:
        found = client.outputs(check_execution_id(execution))
        wanted = [each for each in found if name is None or each.name == name]
        warn_of_last(client, execution)
        if not wanted:
            missing = f"has no output called {name!r}" if name is not None else "has no outputs"
            raise ClientError(f"The execution {execution} {missing}.")
        fetched: list[Output] = []
        for each in wanted:
            path = save_output(client, each, directory, replace=force)
            fetched.append(Output.parse({**each.raw, "path": str(path)}))
            if output is None:
                write_result(str(path))
    if output is not None:
        write_list(fetched, FETCHED_COLUMNS, output)


@outputs.command(name="delete")
def delete_outputs(execution: ExecutionArgument, yes: YesOption = False) -> None:
    """Delete the output files of an execution that has ended."""
    execution_id = check_execution_id(execution)
    with connect() as client:
        confirm(f"Delete all output files of {execution_id}?", yes=yes)
        client.delete_outputs(execution_id)
    say(f"Deleted the outputs of {execution_id}.")


def save_output(client: Client, output: Output, directory: Path, *, replace: bool) -> Path:
    target = directory / safe_output_path(output.name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _make_folders(directory, target)
        if not replace and os.path.lexists(target):
            raise UsageMistakeError(f"{target} is there already: choose another -d, or replace it with --force.")
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".punctual-", delete=False) as partial:
            try:
                _download(client, output, partial.name)
                Path(partial.name).chmod(0o644)
                Path(partial.name).replace(target)
            except BaseException:
                Path(partial.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise CliError(f"{target} cannot be written: {error.strerror or error}.") from None
    return target


def _make_folders(directory: Path, target: Path) -> None:
    """A link that is in the folder already must not lead an output out of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(directory.resolve()):
        raise UsageMistakeError(f"{target} was not written: a link in its path leads out of {directory}.")


def _download(client: Client, output: Output, path: str) -> None:
    digest, size = hashlib.sha256(), 0
    with (
        client.download(output) as pieces,
        Path(path).open("wb") as file,
        DOWNLOADS(output.name, output.size) as advance,
    ):
        for piece in pieces:
            advance(len(piece))
            digest.update(piece)
            size += len(piece)
            if size > output.size:
                break
            file.write(piece)
    if size != output.size or digest.hexdigest() != output.sha256.lower():
        raise CliError(f"What came for {output.name!r} is not what the execution wrote: try again.")
