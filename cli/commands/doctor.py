"""`doctor`: what is well and what is not, from here to the workers; exit code 1 if something is not."""

from __future__ import annotations

import os
import sys

import typer

from cli.app import app
from cli.checks import Finding, Verdict, examine
from cli.commands.options import FormatOption
from cli.results import Format, write_data
from cli.terminal import console, neutralise, say

EXIT_NOT_WELL = 1
MARKS = {Verdict.OK: ("✓", "green"), Verdict.WARNING: ("!", "yellow"), Verdict.FAILED: ("✗", "red")}


@app.command()
def doctor(output: FormatOption = Format.TABLE) -> None:
    """Check the configuration, the server and its parts, the token, the workers and the queues, one by one."""
    findings: list[Finding] = []
    for finding in examine(os.environ):
        findings.append(finding)
        if output in (Format.TABLE, Format.WIDE):
            _write(finding)
    if output in (Format.JSON, Format.YAML):
        write_data([finding.raw for finding in findings], output)
    failed = [finding.name for finding in findings if finding.verdict is Verdict.FAILED]
    if failed:
        say(f"Not well: {', '.join(dict.fromkeys(failed))}.")
        raise typer.Exit(EXIT_NOT_WELL)


def _write(finding: Finding) -> None:
    mark, colour = MARKS[finding.verdict]
    rest = neutralise(f"{finding.name}: {finding.found}" + (f" → {finding.remedy}" if finding.remedy else ""))
    if sys.stdout.isatty():
        from rich.text import Text  # noqa: PLC0415  only a terminal needs what draws

        console(wrap=False).print(Text.assemble((mark, colour), " ", rest))
    else:
        print(mark, rest, flush=True)
