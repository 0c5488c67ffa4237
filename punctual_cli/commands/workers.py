"""`workers`: list and drain workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import add_command_group, connect, resolve_worker_id
from punctual_cli.commands.options import FormatOption, ResultFormatOption
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_resource
from punctual_cli.output.terminal import format_time, write_message
from punctual_client.errors import IN_CHECKOUT, PROGRAM

if TYPE_CHECKING:
    from punctual_client.resources.workers import Worker


def _format_number(value: float | None) -> str:
    return "-" if value is None else str(value)


COLUMNS: tuple[Column[Worker], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("NAME", raw_field("name")),
    Column("STATUS", lambda worker: f"{worker.status}, refuses work" if worker.refusal else worker.status),
    Column("HOST", raw_field("host"), drop_order=2),
    Column("POOL", raw_field("pool"), drop_order=1),
    Column("SLOTS", lambda worker: f"{_format_number(worker.runs)}/{_format_number(worker.slots)}"),
    Column("LOAD", lambda worker: _format_number(worker.load), drop_order=1),
    Column("AS OF", lambda worker: format_time(worker.used_at), drop_order=4),
    Column("CPU", raw_field("cpu"), wide=True),
    Column("MEMORY", raw_field("memory_mb"), wide=True),
    Column("DISK", raw_field("disk_mb"), wide=True),
    Column("TRANSPORT", raw_field("transport"), wide=True),
    Column("LEASE UNTIL", time_field("lease_until"), wide=True),
    Column("CAPABILITIES", lambda worker: worker.capabilities_description, drop_order=3),
)

workers_app = add_command_group("workers", help="List and drain workers.")


@workers_app.callback(invoke_without_command=True)
def workers(context: typer.Context, output: FormatOption = Format.TABLE) -> None:
    """List workers with their used slots and the load they last reported."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.workers()
    start = f"{PROGRAM} up starts one here, {PROGRAM} worker on another machine" if IN_CHECKOUT else "start one"
    write_list(found, COLUMNS, output, if_empty=f"No workers: {start}.")
    for worker in found:
        if worker.refusal:
            write_message(f"{worker.name} refuses work. {worker.refusal}")


@workers_app.command()
def drain(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Worker name or id.")],
    output: ResultFormatOption = None,
) -> None:
    """Drain a worker: it finishes its executions and gets no new ones until it is restarted. Staff only."""
    with connect() as client:
        drained = client.drain_worker(resolve_worker_id(client, worker))
    write_message(f"The worker {drained.name} is {drained.status}.")
    write_resource(drained.raw, output)
