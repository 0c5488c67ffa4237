"""`workers`: where jobs run, and taking one out of service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import connect, group, resolve_worker
from cli.commands.options import AnswerOption, FormatOption
from cli.results import Column, Format, field, moment, write_answer, write_list
from cli.terminal import say, shown_time

if TYPE_CHECKING:
    from cli.records import Worker


def _shown(value: float | None) -> str:
    return "-" if value is None else str(value)


COLUMNS: tuple[Column[Worker], ...] = (
    Column("ID", field("id"), whole=True),
    Column("NAME", field("name")),
    Column("STATUS", lambda worker: f"{worker.status}, refuses work" if worker.refusal else worker.status),
    Column("HOST", field("host"), spare=2),
    Column("POOL", field("pool"), spare=1),
    Column("SLOTS", lambda worker: f"{_shown(worker.runs)}/{_shown(worker.slots)}"),
    Column("LOAD", lambda worker: _shown(worker.load), spare=1),
    Column("AS OF", lambda worker: shown_time(worker.used_at), spare=4),
    Column("CPU", field("cpu"), wide=True),
    Column("MEMORY", field("memory_mb"), wide=True),
    Column("DISK", field("disk_mb"), wide=True),
    Column("BY", field("transport"), wide=True),
    Column("LEASE UNTIL", moment("lease_until"), wide=True),
    Column("CAPABILITIES", lambda worker: worker.able_to(), spare=3),
)

workers_app = group("workers", help="List workers, and drain them.")


@workers_app.callback(invoke_without_command=True)
def workers(context: typer.Context, output: FormatOption = Format.TABLE) -> None:
    """List workers: what each runs of what it could, and how busy its machine was when it said so."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.workers()
    write_list(
        found,
        COLUMNS,
        output,
        nothing="No workers: ./punctual up starts one here, ./punctual worker on another machine.",
    )
    for worker in found:
        if worker.refusal:
            say(f"{worker.name} refuses work. {worker.refusal}")


@workers_app.command()
def drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Its id, or its name.")], output: AnswerOption = None
) -> None:
    """Let a worker finish what it holds and give it nothing new, until it is started again. For staff."""
    with connect() as client:
        drained = client.drain_worker(resolve_worker(client, worker))
    say(f"The worker {drained.name} is {drained.status}.")
    write_answer(drained.raw, output)
