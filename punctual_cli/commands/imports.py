"""`import crontab` and `import celery-beat`: jobs from another scheduler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from punctual_cli.app import add_command_group
from punctual_cli.argument_parsing import parse_timezone
from punctual_cli.commands.apply import read_bounded
from punctual_cli.commands.options import FormatOption, YesOption
from punctual_cli.importers.celery_beat import DEFAULT_SCRIPT, JobTemplate, read_app, read_fixture
from punctual_cli.importers.crontab import find_machine_timezone, read_crontab
from punctual_cli.importers.importing import apply_import, write_manifest
from punctual_cli.importers.job_naming import OnConflict
from punctual_cli.output.results import Format
from punctual_client.errors import UsageError
from punctual_client.programs import guess_runtime

imports_app = add_command_group("import", help="Import jobs from a crontab or from Celery beat.")

WriteOption = Annotated[
    Path | None, typer.Option("--write", metavar="FILE.yaml", help="Write a file for apply instead of importing.")
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Change jobs of the same name even if they run something else.")
]
KeepBothOption = Annotated[
    bool, typer.Option("--keep-both", help="Keep jobs of the same name, and create the imported ones under new names.")
]


@imports_app.command()
def crontab(  # noqa: PLR0917  one parameter per option
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output of crontab -l; - for standard input.")],
    system: Annotated[
        bool, typer.Option("--system", help="The file has a column for the user, like /etc/crontab.")
    ] = False,
    tz: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of the crontab. Default: this machine's.")
    ] = None,
    replace: ReplaceOption = False,
    keep_both: KeepBothOption = False,
    write: WriteOption = None,
    yes: YesOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the job that each line of a crontab becomes, ask, and create the jobs."""
    on_conflict = _on_conflict(replace=replace, keep_both=keep_both)
    _check_output(output, write)
    timezone = find_machine_timezone(os.environ) if tz is None else parse_timezone(tz).key
    name = "crontab" if str(file) == "-" else str(file)
    imports = read_crontab(read_bounded(file), name, system=system, timezone=timezone)
    if write is not None:
        write_manifest(imports, write, on_conflict=on_conflict)
    else:
        apply_import(imports, on_conflict=on_conflict, output=output, yes=yes, stdin_is_data=str(file) == "-")


@imports_app.command(name="celery-beat")
def celery_beat(  # noqa: PLR0917  one parameter per option
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Output of manage.py dumpdata django_celery_beat; - for standard input."),
    ] = None,
    application: Annotated[
        str | None,
        typer.Option("--app", metavar="MODULE:APP", help="Read the beat_schedule of this app; imports your code."),
    ] = None,
    python: Annotated[str, typer.Option(metavar="PYTHON", help="Python interpreter for --app.")] = "python3",
    template: Annotated[
        Path | None,
        typer.Option(metavar="SCRIPT", help="Script of every job; reads BEAT_TASK, BEAT_ARGS … from its environment."),
    ] = None,
    secret: Annotated[str | None, typer.Option(metavar="NAME", help="Secret with the CELERY_BROKER_URL.")] = None,
    network: Annotated[
        bool | None, typer.Option("--network/--no-network", help="Give the jobs network access or none.")
    ] = None,
    replace: ReplaceOption = False,
    keep_both: KeepBothOption = False,
    write: WriteOption = None,
    yes: YesOption = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the job that each periodic task becomes, ask, and create the jobs.

    Without --template each job sends its task to your Celery workers, through the broker in the secret
    celery-broker-url.
    """
    if (file is None) == (application is None):
        raise UsageError("Give either a FILE or --app.")
    on_conflict = _on_conflict(replace=replace, keep_both=keep_both)
    _check_output(output, write)
    job_template = _job_template(template, secret, network)
    if application is not None:
        imports = read_app(application, python, job_template)
    else:
        name = "fixture" if file is None or str(file) == "-" else str(file)
        imports = read_fixture(read_bounded(file or Path("-")), name, job_template)
    if write is not None:
        write_manifest(imports, write, on_conflict=on_conflict)
    else:
        apply_import(imports, on_conflict=on_conflict, output=output, yes=yes, stdin_is_data=str(file) == "-")


def _on_conflict(*, replace: bool, keep_both: bool) -> OnConflict:
    if replace and keep_both:
        raise UsageError("Give either --replace or --keep-both.")
    return OnConflict.REPLACE if replace else OnConflict.KEEP_BOTH if keep_both else OnConflict.SKIP


def _check_output(output: Format, write: Path | None) -> None:
    if write is not None and output is not Format.TABLE:
        raise UsageError(
            "-o cannot be combined with --write, which shows no plan: apply --plan shows that of the file."
        )


def _job_template(template: Path | None, secret: str | None, network: bool | None) -> JobTemplate:
    """Return the script of all jobs: the default one with its broker and network, or the given one."""
    if template is None:
        return JobTemplate("sh", DEFAULT_SCRIPT, secret or "celery-broker-url", network is not False)
    content = read_bounded(template)
    try:
        script = content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{template} is not UTF-8 text.") from None
    return JobTemplate(guess_runtime(template, content[:256]).value, script, secret, network is True)
