"""`doctor`: check everything from the local configuration to the workers."""

from __future__ import annotations

import os
import sys

import typer

from punctual_cli.app import app
from punctual_cli.commands.options import FormatOption
from punctual_cli.doctor_checks import Finding, Verdict, run_checks
from punctual_cli.output.results import Format, write_data
from punctual_cli.output.terminal import console, escape_control_characters, write_message

EXIT_CHECK_FAILED = 1
MARKS = {Verdict.OK: ("✓", "green"), Verdict.WARNING: ("!", "yellow"), Verdict.FAILED: ("✗", "red")}


@app.command()
def doctor(output: FormatOption = Format.TABLE) -> None:
    """Check the configuration, the server and its components, the token, the workers and the queues.

    Exit code 1 if a check failed.
    """
    findings: list[Finding] = []
    for finding in run_checks(os.environ):
        findings.append(finding)
        if output in (Format.TABLE, Format.WIDE):
            _write_finding(finding)
    if output in (Format.JSON, Format.YAML):
        write_data([finding.raw for finding in findings], output)
    failed = [finding.name for finding in findings if finding.verdict is Verdict.FAILED]
    if failed:
        write_message(f"Failed: {', '.join(dict.fromkeys(failed))}.")
        raise typer.Exit(EXIT_CHECK_FAILED)


def _write_finding(finding: Finding) -> None:
    mark, colour = MARKS[finding.verdict]
    text = escape_control_characters(
        f"{finding.name}: {finding.found}" + (f" → {finding.remedy}" if finding.remedy else "")
    )
    if sys.stdout.isatty():
        from rich.text import Text  # noqa: PLC0415  only a terminal needs it

        console(wrap=False).print(Text.assemble((mark, colour), " ", text))
    else:
        print(mark, text, flush=True)
