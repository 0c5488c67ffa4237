"""`outputs`, `artifacts` and `usage`: files in the object store and the quota they count towards.

A downloaded output gets its name only when its size and hash match what the server stated, and never outside the chosen
directory, whatever name the job gave it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import add_command_group, app, check_execution_id, connect
from punctual_cli.argument_parsing import is_uuid, safe_output_path
from punctual_cli.commands.options import ExecutionArgument, FormatOption, LimitOption, ResultFormatOption, YesOption
from punctual_cli.output.attempt_lines import warn_about_last_attempt
from punctual_cli.output.progress_bars import DOWNLOAD_PROGRESS
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_data, write_fields, write_list
from punctual_cli.output.terminal import confirm, write_message, write_result
from punctual_client.errors import PROGRAM, ApiError, PunctualError, UsageError
from punctual_client.resources.outputs import Output

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.artifacts import StoredArtifact

BYTES_PER_MB = 1024 * 1024
OUTPUT_COLUMNS: tuple[Column[Output], ...] = (
    Column("NAME", raw_field("name"), whole=True),
    Column("SIZE", raw_field("size")),
    Column("SHA256", raw_field("sha256")),
)
DOWNLOADED_COLUMNS: tuple[Column[Output], ...] = (*OUTPUT_COLUMNS, Column("PATH", raw_field("path"), whole=True))
ARTIFACT_COLUMNS: tuple[Column[StoredArtifact], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("STATUS", raw_field("status")),
    Column("IN USE", lambda artifact: "yes" if artifact.in_use else "no"),
    Column("SIZE", raw_field("size")),
    Column("CREATED", time_field("created_at")),
    Column("SHA256", raw_field("sha256")),
    Column("VERIFIED", time_field("verified_at"), wide=True),
)

outputs_app = add_command_group("outputs", help="List, download and delete the files that an execution left in out/.")
artifacts_app = add_command_group("artifacts", help="List and delete the programs and files that jobs run.")


@outputs_app.command(name="list")
def list_outputs(execution: ExecutionArgument, output: FormatOption = Format.TABLE) -> None:
    """List the output files of an execution."""
    with connect() as client:
        found = client.outputs(check_execution_id(execution))
        write_list(
            found, OUTPUT_COLUMNS, output, if_empty="No output files: a program keeps files by writing them to out/."
        )
        warn_about_last_attempt(client, execution)


@outputs_app.command(name="get")
def get_outputs(
    execution: ExecutionArgument,
    name: Annotated[str | None, typer.Argument(help="One file. Default: all of them.")] = None,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", metavar="DIRECTORY", help="Destination directory.")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    output: ResultFormatOption = None,
) -> None:
    """Download output files. Prints the path of each."""
    with connect() as client:
        found = client.outputs(check_execution_id(execution))
        selected = [each for each in found if name is None or each.name == name]
        warn_about_last_attempt(client, execution)
        if not selected:
            missing = f"has no output called {name!r}" if name is not None else "has no outputs"
            raise ApiError(f"The execution {execution} {missing}.")
        downloaded: list[Output] = []
        for each in selected:
            path = save_output(client, each, directory, replace=force)
            downloaded.append(Output.parse({**each.raw, "path": str(path)}))
            if output is None:
                write_result(str(path))
    if output is not None:
        write_list(downloaded, DOWNLOADED_COLUMNS, output)


@outputs_app.command(name="delete")
def delete_outputs(execution: ExecutionArgument, yes: YesOption = False) -> None:
    """Delete the output files of an execution that has ended."""
    execution_id = check_execution_id(execution)
    with connect() as client:
        confirm(f"Delete all output files of {execution_id}?", yes=yes)
        client.delete_outputs(execution_id)
    write_message(f"Deleted the outputs of {execution_id}.")


@artifacts_app.callback(invoke_without_command=True)
def list_artifacts(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List artifacts, newest first."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.artifacts(limit=limit)
    if_empty = f"No artifacts yet: {PROGRAM} submit FILE uploads binary and large programs."
    write_list(found, ARTIFACT_COLUMNS, output, if_empty=if_empty)


@artifacts_app.command(name="delete")
def delete_artifact(
    artifact: Annotated[str, typer.Argument(metavar="ARTIFACT", help="Artifact id.")], yes: YesOption = False
) -> None:
    """Delete an artifact that no job uses."""
    if not is_uuid(artifact):
        raise UsageError(f"{artifact!r} is not the id of an artifact: {PROGRAM} artifacts lists them.")
    with connect() as client:
        confirm(f"Delete the artifact {artifact}?", yes=yes)
        client.delete_artifact(artifact)
    write_message(f"Deleted {artifact}.")


@app.command()
def usage(output: FormatOption = Format.TABLE) -> None:
    """Show your quotas and how much of them you use: storage, jobs, concurrent executions, requests per minute."""
    with connect() as client:
        current = client.usage()
    if output in (Format.JSON, Format.YAML):
        write_data(current.raw, output)
        return
    quota = [("quota", current.quota)] if current.quota else []
    sizes = [*current.parts, ("used", current.used), *quota]
    write_fields([(name, f"{size / BYTES_PER_MB:.1f}") for name, size in sizes], ("STORAGE", "MB"))
    rows = [
        (name.replace("_", " "), "" if used is None else str(used), str(limit) if limit else "no limit")
        for name, used, limit in current.counts
    ]
    if rows:
        write_fields(rows, ("QUOTA", "USED", "LIMIT"))


def save_output(client: Client, output: Output, directory: Path, *, replace: bool) -> Path:
    target = directory / safe_output_path(output.name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _create_parent_directories(directory, target)
        if not replace and os.path.lexists(target):
            raise UsageError(f"{target} exists already: choose another -d, or overwrite it with --force.")
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".punctual-", delete=False) as partial:
            try:
                _download(client, output, partial.name)
                Path(partial.name).chmod(0o644)
                Path(partial.name).replace(target)
            except BaseException:
                Path(partial.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise PunctualError(f"{target} cannot be written: {error.strerror or error}.") from None
    return target


def _create_parent_directories(directory: Path, target: Path) -> None:
    """Create them, unless an existing link leads out of the chosen directory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(directory.resolve()):
        raise UsageError(f"{target} was not written: a link in its path leads out of {directory}.")


def _download(client: Client, output: Output, path: str) -> None:
    digest, size = hashlib.sha256(), 0
    with (
        client.download(output) as pieces,
        Path(path).open("wb") as file,
        DOWNLOAD_PROGRESS(output.name, output.size) as advance,
    ):
        for piece in pieces:
            advance(len(piece))
            digest.update(piece)
            size += len(piece)
            if size > output.size:
                break
            file.write(piece)
    if size != output.size or digest.hexdigest() != output.sha256.lower():
        raise PunctualError(f"The download of {output.name!r} does not match its size and hash: try again.")
