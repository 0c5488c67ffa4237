"""`artifacts` and `usage`: what is kept in the object store, what it counts, and how to get rid of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect, group
from cli.commands.options import FormatOption, LimitOption, YesOption
from cli.errors import UsageMistakeError
from cli.results import Column, Format, field, moment, write_data, write_fields, write_list
from cli.terminal import confirm, say
from cli.values import is_id

if TYPE_CHECKING:
    from cli.storage_records import KeptArtifact

MEGABYTE = 1024 * 1024
COLUMNS: tuple[Column[KeptArtifact], ...] = (
    Column("ID", field("id"), whole=True),
    Column("STATUS", field("status")),
    Column("IN USE", lambda artifact: "yes" if artifact.in_use else "no"),
    Column("SIZE", field("size")),
    Column("CREATED", moment("created_at")),
    Column("SHA256", field("sha256")),
    Column("VERIFIED", moment("verified_at"), wide=True),
)

artifacts_app = group("artifacts", help="List the programs and files that jobs run, and delete them.")


@artifacts_app.callback(invoke_without_command=True)
def list_artifacts(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List artifacts, newest first; delete them."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.artifacts(limit=limit)
    write_list(found, COLUMNS, output, nothing="No artifacts yet: ./punctual submit FILE uploads what a job runs.")


@artifacts_app.command(name="delete")
def delete_artifact(
    artifact: Annotated[str, typer.Argument(metavar="ARTIFACT", help="Its id.")], yes: YesOption = False
) -> None:
    """Delete an artifact, if nothing may run it any more."""
    if not is_id(artifact):
        raise UsageMistakeError(f"{artifact!r} is not the id of an artifact: ./punctual artifacts lists them.")
    with connect() as client:
        confirm(f"Delete the artifact {artifact}?", yes=yes)
        client.delete_artifact(artifact)
    say(f"Deleted {artifact}.")


@app.command()
def usage(output: FormatOption = Format.TABLE) -> None:
    """Show what you use of your quotas: storage, jobs, executions at once, requests a minute."""
    with connect() as client:
        use = client.storage_use()
    if output in (Format.JSON, Format.YAML):
        write_data(use.raw, output)
        return
    quota = [("quota", use.quota)] if use.quota else []
    sizes = [*use.parts, ("used", use.used), *quota]
    write_fields([(name, f"{size / MEGABYTE:.1f}") for name, size in sizes], ("STORAGE", "MB"))
    rows = [
        (name.replace("_", " "), "" if used is None else str(used), str(most) if most else "no limit")
        for name, used, most in use.counts
    ]
    if rows:
        write_fields(rows, ("QUOTA", "USED", "AT MOST"))
