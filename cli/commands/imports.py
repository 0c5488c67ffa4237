"""`import crontab` and `import celery-beat`: what another scheduler runs becomes jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.app import group
from cli.celery_beats import DEFAULT_SCRIPT, Wrapping, read_app, read_fixture
from cli.commands.apply import read_bounded
from cli.commands.options import FormatOption, YesOption
from cli.crontabs import machine_zone, read_crontab
from cli.errors import UsageMistakeError
from cli.import_naming import Clash
from cli.imports import make_import, write_import
from cli.programs import guess_runtime
from cli.results import Format
from cli.values import parse_zone

imports_app = group("import", help="Make jobs of what cron or Celery beat runs.")

WriteOption = Annotated[
    Path | None, typer.Option("--write", metavar="FILE.yaml", help="Write a file for apply instead.")
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Change jobs of the same name also where they run something else.")
]
BesideOption = Annotated[
    bool, typer.Option("--beside", help="Leave such jobs as they are, and make others beside them.")
]


@imports_app.command()
def crontab(  # noqa: PLR0917  each is an option of the command line
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As crontab -l prints it; - is standard input.")],
    system: Annotated[bool, typer.Option("--system", help="With a column for the user, as /etc/crontab.")] = False,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="Default: this machine's.")] = None,
    replace: ReplaceOption = False,
    beside: BesideOption = False,
    write: WriteOption = None,
    yes: YesOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what each line of a crontab would become, ask, and make the jobs."""
    clash = _clash(replace=replace, beside=beside)
    _check_output(output, write)
    timezone = machine_zone(os.environ) if tz is None else parse_zone(tz).key
    name = "crontab" if str(file) == "-" else str(file)
    imports = read_crontab(read_bounded(file), name, system=system, timezone=timezone)
    if write is not None:
        write_import(imports, write, clash=clash)
    else:
        make_import(imports, clash=clash, output=output, yes=yes, stdin_is_data=str(file) == "-")


@imports_app.command(name="celery-beat")
def celery_beat(  # noqa: PLR0917  each is an option of the command line
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="What manage.py dumpdata django_celery_beat prints; - is stdin."),
    ] = None,
    application: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:APP", help="Read its beat_schedule: this imports your code.")
    ] = None,
    python: Annotated[str, typer.Option(metavar="PYTHON", help="The Python that --app is imported with.")] = "python3",
    template: Annotated[
        Path | None,
        typer.Option(metavar="SCRIPT", help="What each job runs, given BEAT_TASK, BEAT_ARGS and so on; see the docs."),
    ] = None,
    secret: Annotated[str | None, typer.Option(metavar="NAME", help="The secret that CELERY_BROKER_URL is in.")] = None,
    network: Annotated[bool | None, typer.Option("--network/--no-network", help="Whether the jobs have one.")] = None,
    replace: ReplaceOption = False,
    beside: BesideOption = False,
    write: WriteOption = None,
    yes: YesOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what each periodic task would become, ask, and make the jobs.

    Without --template a job sends its task to your Celery workers, by the broker in the secret celery-broker-url.
    """
    if (file is None) == (application is None):
        raise UsageMistakeError("Give either a FILE or --app.")
    clash = _clash(replace=replace, beside=beside)
    _check_output(output, write)
    wrapping = _wrapping(template, secret, network)
    if application is not None:
        imports = read_app(application, python, wrapping)
    else:
        name = "fixture" if file is None or str(file) == "-" else str(file)
        imports = read_fixture(read_bounded(file or Path("-")), name, wrapping)
    if write is not None:
        write_import(imports, write, clash=clash)
    else:
        make_import(imports, clash=clash, output=output, yes=yes, stdin_is_data=str(file) == "-")


def _clash(*, replace: bool, beside: bool) -> Clash:
    if replace and beside:
        raise UsageMistakeError("Give either --replace or --beside.")
    return Clash.REPLACE if replace else Clash.BESIDE if beside else Clash.LEAVE_OUT


def _check_output(output: Format, write: Path | None) -> None:
    if write is not None and output is not Format.TABLE:
        raise UsageMistakeError(
            "-o has no meaning beside --write, which shows no plan: apply --plan shows that of the file."
        )


def _wrapping(template: Path | None, secret: str | None, network: bool | None) -> Wrapping:
    """The default script needs a broker and a network; another one says itself what it needs."""
    if template is None:
        return Wrapping("sh", DEFAULT_SCRIPT, secret or "celery-broker-url", network is not False)
    content = read_bounded(template)
    try:
        script = content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageMistakeError(f"{template} is not UTF-8 text.") from None
    return Wrapping(guess_runtime(template, content[:256]).value, script, secret, network is True)
