"""Import of jobs from another scheduler: shown as a plan, then created or written to a manifest.

An entry that cannot be converted exactly is skipped, with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from punctual_cli.app import connect
from punctual_cli.apply.applying import apply_plan, show_plan
from punctual_cli.apply.manifests import read_manifest
from punctual_cli.apply.planning import Plan, make_plan
from punctual_cli.apply.reference_checks import own_secret_names
from punctual_cli.importers.import_result import ImportedJob, ImportResult, SkippedEntry, clean_name
from punctual_cli.importers.job_naming import ExistingJobs, OnConflict, name_jobs
from punctual_cli.output.results import Format, to_yaml
from punctual_cli.output.terminal import confirm, escape_control_characters, write_message
from punctual_client.errors import PROGRAM, ApiError, NotConfiguredError, UnreachableError, UsageError
from punctual_client.json_fields import as_objects, text_field

if TYPE_CHECKING:
    from punctual_client.client import Client


def render_manifest(imports: ImportResult) -> str:
    """Return the jobs as a manifest, with the warnings as comments."""
    lines = [_format_comment(f"{each.where}: {each.message}") for each in imports.notes]
    lines += [_format_comment(f"Skipped, {each.where}: {each.what}: {each.reason}") for each in imports.skipped]
    lines.append("jobs:")
    for each in imports.jobs:
        lines += [_format_comment(text) for text in (each.where, *each.warnings)]
        first, *rest = to_yaml(dict(each.job)).split("\n")
        lines += [f"- {first}", *(f"  {line}" if line else "" for line in rest)]
    return "\n".join(lines) + "\n"


def _format_comment(text: str) -> str:
    return f"# {escape_control_characters(' '.join(text.split()))}"


def write_manifest(imports: ImportResult, file: Path, *, on_conflict: OnConflict) -> None:
    imports = _check_if_reachable(imports, on_conflict)
    _print_notes(imports)
    _write_manifest_file(file, imports)


def apply_import(
    imports: ImportResult, *, on_conflict: OnConflict, output: Format, yes: bool, stdin_is_data: bool
) -> None:
    with connect() as client:
        imports = _check_and_name(client, imports, on_conflict)
        _print_notes(imports)
        if not imports.jobs:
            write_message("Nothing can be imported.")
            show_plan(Plan((), (), {}), output)
            return
        check_secrets(client, imports)
        plan = make_plan(client, read_manifest(render_manifest(imports).encode(), "import", Path()))
        show_plan(plan, output)
        if not plan.is_empty:
            question = f"Apply this plan to {len(imports.jobs)} jobs?"
            confirm(question, yes=yes, stdin_is_data=stdin_is_data)
        apply_plan(client, plan, retry_hint="Import again")


def _check_and_name(client: Client, imports: ImportResult, on_conflict: OnConflict) -> ImportResult:
    return name_jobs(skip_refused_schedules(client, imports), ExistingJobs(client), on_conflict)


def _check_if_reachable(imports: ImportResult, on_conflict: OnConflict) -> ImportResult:
    """Check with the server if there is one; otherwise `apply` will check the file."""
    try:
        with connect() as client:
            return _check_and_name(client, imports, on_conflict)
    except (NotConfiguredError, UnreachableError):
        write_message("No server can be reached: schedules and names are not checked until the file is applied.")
        return name_jobs(imports, None, on_conflict)


def skip_refused_schedules(client: Client, imports: ImportResult) -> ImportResult:
    """Skip jobs whose schedules the server would refuse, before anything is created."""
    kept: list[ImportedJob] = []
    skipped = list(imports.skipped)
    for each in imports.jobs:
        try:
            manifest = read_manifest(render_manifest(ImportResult((each,), ())).encode(), each.where, Path())
            client.preview_schedules([*manifest.jobs[0].schedules], count=1)
        except (ApiError, UsageError) as error:
            if isinstance(error, ApiError) and error.status != 400:
                raise
            skipped.append(SkippedEntry(each.where, each.name, error.message))
        else:
            kept.append(each)
    return replace(imports, jobs=tuple(kept), skipped=tuple(skipped))


def check_secrets(client: Client, imports: ImportResult) -> None:
    """Check that the secrets of the jobs exist, before anything is created."""
    grants = [grant for each in imports.jobs for grant in as_objects(each.job.get("secrets", []))]
    wanted = {text_field(grant, "name") for grant in grants}
    for name in sorted(wanted - own_secret_names(client, client.owner()) if wanted else wanted):
        raise ApiError(f"There is no secret {name}: {PROGRAM} secrets set {name} makes it; --secret names another.")


def _print_notes(imports: ImportResult) -> None:
    for note in imports.notes:
        write_message(f"{note.where}: {note.message}")
    for each in imports.jobs:
        for warning in each.warnings:
            write_message(f"{each.where}: {each.name}: {warning}")
    for entry in imports.skipped:
        write_message(f"{entry.where}: skipped: {clean_name(entry.what)}: {entry.reason}")


def _write_manifest_file(path: Path, imports: ImportResult) -> None:
    """Write a new file; an existing one may have been edited."""
    if not imports.jobs:
        raise UsageError("Nothing can be imported, and nothing was written.")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(render_manifest(imports))
    except FileExistsError:
        raise UsageError(f"{path} exists already: choose another name, or delete it.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
    write_message(f"Wrote {len(imports.jobs)} jobs to {path}. Next: {PROGRAM} apply {path} --plan")
