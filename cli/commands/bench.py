"""`bench`: how fast this server takes, starts and ends tiny jobs, measured on it as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.app import app, connect
from cli.commands.options import FormatOption, YesOption
from cli.config import is_loopback
from cli.load import Measured, Spread, measure
from cli.results import Format, write_data, write_fields
from cli.terminal import confirm, say
from cli.values import parse_duration


@app.command()
def bench(
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=2000, help="How many.")] = 100,
    at_once: Annotated[int, typer.Option(metavar="N", min=1, max=32, help="Submissions at the same time.")] = 8,
    wait_limit: Annotated[str, typer.Option(metavar="DURATION", help="Give up after this long.")] = "5m",
    yes: YesOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Submit tiny jobs, measure how they fare, and delete them. Asks first if the server is another machine's."""
    limit_seconds = parse_duration(wait_limit)
    with connect() as client:
        if not is_loopback(client.url):
            confirm(f"Submit {jobs} jobs to {client.url}, which others may use as well?", yes=yes)
        say(f"Submitting {jobs} jobs, {at_once} at once; they are deleted afterwards.")
        measured = measure(client, jobs=jobs, at_once=at_once, limit_seconds=limit_seconds)
    if output in (Format.JSON, Format.YAML):
        write_data(measured.raw, output)
        return
    _write(measured)


def _write(measured: Measured) -> None:
    def row(name: str, spread: Spread) -> tuple[str, ...]:
        return (name, *(f"{each:.1f}" for each in (spread.p50, spread.p99, spread.most)))

    rows = [
        row("answer to a submission", measured.submit),
        row("submitted to started", measured.submitted_to_started),
        row("started to ended", measured.started_to_ended),
        row("submitted to ended", measured.submitted_to_ended),
    ]
    write_fields(rows, ("MILLISECONDS", "P50", "P99", "MOST"))
    failed = f"; {measured.failed} did not succeed" if measured.failed else ""
    say(
        f"{measured.jobs} jobs: {measured.submits_per_second:g} submitted and {measured.ends_per_second:g} ended "
        f"a second{failed}."
    )
