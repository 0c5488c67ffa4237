"""What another scheduler runs, as a file for `apply`: shown first, then written or made.

Nothing is half imported: whatever cannot be carried over exactly is left out, with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cli.answers import as_objects, text
from cli.app import connect
from cli.applying import apply_plan, show_plan
from cli.errors import ClientError, NotConfiguredError, UnreachableError, UsageMistakeError
from cli.import_naming import Clash, Known, name_jobs
from cli.imported import Imported, Imports, LeftOut, plain_name
from cli.manifests import read_manifest
from cli.plan_checks import own_secrets
from cli.planning import Plan, make_plan
from cli.results import Format, as_yaml
from cli.terminal import confirm, neutralise, say

if TYPE_CHECKING:
    from cli.client import Client


def manifest_of(imports: Imports) -> str:
    """With the warnings as comments, where whoever edits the file sees them."""
    lines = [_comment(f"{each.where}: {each.sentence}") for each in imports.notes]
    lines += [_comment(f"Left out, {each.where}: {each.what}: {each.reason}") for each in imports.left_out]
    lines.append("jobs:")
    for each in imports.jobs:
        lines += [_comment(text) for text in (each.where, *each.warnings)]
        first, *rest = as_yaml(dict(each.job)).split("\n")
        lines += [f"- {first}", *(f"  {line}" if line else "" for line in rest)]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return f"# {neutralise(' '.join(text.split()))}"


def write_import(imports: Imports, file: Path, *, clash: Clash) -> None:
    imports = _checked_if_possible(imports, clash)
    _tell(imports)
    _write(file, imports)


def make_import(imports: Imports, *, clash: Clash, output: Format, yes: bool, stdin_is_data: bool) -> None:
    with connect() as client:
        imports = _checked(client, imports, clash)
        _tell(imports)
        if not imports.jobs:
            say("Nothing can be imported.")
            show_plan(Plan((), (), {}), output)
            return
        check_secrets(client, imports)
        plan = make_plan(client, read_manifest(manifest_of(imports).encode(), "import", Path()))
        show_plan(plan, output)
        if not plan.is_empty:
            question = f"Make these {len(imports.jobs)} jobs what is shown here?"
            confirm(question, yes=yes, stdin_is_data=stdin_is_data)
        apply_plan(client, plan, again="Import again")


def _checked(client: Client, imports: Imports, clash: Clash) -> Imports:
    return name_jobs(without_refused(client, imports), Known(client), clash)


def _checked_if_possible(imports: Imports, clash: Clash) -> Imports:
    """A file may be written where no server is, and is looked at by `apply` then."""
    try:
        with connect() as client:
            return _checked(client, imports, clash)
    except (NotConfiguredError, UnreachableError):
        say("There is no server to ask: neither the schedules nor the names are checked before they are applied.")
        return name_jobs(imports, None, clash)


def without_refused(client: Client, imports: Imports) -> Imports:
    """Schedules that the server would refuse are found before anything is made."""
    kept: list[Imported] = []
    left_out = list(imports.left_out)
    for each in imports.jobs:
        try:
            manifest = read_manifest(manifest_of(Imports((each,), ())).encode(), each.where, Path())
            client.preview_schedules([*manifest.jobs[0].schedules], count=1)
        except (ClientError, UsageMistakeError) as error:
            if isinstance(error, ClientError) and error.status != 400:
                raise
            left_out.append(LeftOut(each.where, each.name, error.sentence))
        else:
            kept.append(each)
    return replace(imports, jobs=tuple(kept), left_out=tuple(left_out))


def check_secrets(client: Client, imports: Imports) -> None:
    """What a job is given must be there before the job is; better said before anything is made."""
    grants = [grant for each in imports.jobs for grant in as_objects(each.job.get("secrets", []))]
    wanted = {text(grant, "name") for grant in grants}
    for name in sorted(wanted - own_secrets(client, client.owner()) if wanted else wanted):
        raise ClientError(f"There is no secret {name}: ./punctual secrets set {name} makes it; --secret names another.")


def _tell(imports: Imports) -> None:
    for note in imports.notes:
        say(f"{note.where}: {note.sentence}")
    for each in imports.jobs:
        for warning in each.warnings:
            say(f"{each.where}: {each.name}: {warning}")
    for left in imports.left_out:
        say(f"{left.where}: left out: {plain_name(left.what)}: {left.reason}")


def _write(path: Path, imports: Imports) -> None:
    """Never over a file that is there: it may have been edited since."""
    if not imports.jobs:
        raise UsageMistakeError("Nothing can be imported, and nothing was written.")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(manifest_of(imports))
    except FileExistsError:
        raise UsageMistakeError(f"{path} is there already: choose another name, or delete it.") from None
    except OSError as error:
        raise UsageMistakeError(f"{path} cannot be written: {error.strerror or error}.") from None
    say(f"Wrote {len(imports.jobs)} jobs to {path}. Next: ./punctual apply {path} --plan")
