"""A plan, shown and done: in the order of dependencies, until the first refusal.

What was done before a refusal stays, and applying the file again goes on from there: whatever is as the file says is
not touched.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cli.answers import JsonObject
from cli.errors import CliError
from cli.manifests import JOB_DEFAULTS, REQUIREMENTS_DEFAULTS, RETRY_DEFAULTS, JobManifest, Source
from cli.planning import CalendarStep, Change, JobStep, Plan
from cli.programs import prepare_program, prepare_stdin, upload_file
from cli.progress import UPLOADS
from cli.results import Format, write_data
from cli.terminal import say, shown_time, write_result
from cli.values import is_id

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Instant

_SIGNS = {"create": "+", "change": "~", "unchanged": "="}
_DEFAULTS = {**JOB_DEFAULTS, "requirements": REQUIREMENTS_DEFAULTS, "retry": RETRY_DEFAULTS}
LONGEST_SHOWN = 60
MOST_LISTED = 20
_HASH = re.compile(r"(?:^|[ ,])H(?:$|[ ,/(])")


def show_plan(plan: Plan, output: Format) -> None:
    if output in (Format.JSON, Format.YAML):
        write_data(plan_as_json(plan), output)
        return
    for calendar in plan.calendars:
        write_result(f"{_SIGNS[calendar.action]} calendar {calendar.name}: {_calendar_shown(calendar)}")
    for step in plan.jobs:
        write_result(f"{_SIGNS[step.action]} {step.name}: {step.action}")
        for change in step.changes:
            for line in _change_lines(change):
                write_result(f"    {line}")
        write_result(f"    {_when(step)}")
    counts = Counter(step.action for step in plan.steps)
    write_result(f"{counts['create']} to create, {counts['change']} to change, {counts['unchanged']} unchanged.")


def plan_as_json(plan: Plan) -> JsonObject:
    return {
        "calendars": [{"name": step.name, "action": step.action} for step in plan.calendars],
        "jobs": [
            {
                "name": step.name,
                "id": step.stored.id if step.stored else None,
                "action": step.action,
                "changes": [{"field": each.field, "old": each.old, "new": each.new} for each in step.changes],
                "next": [instant.raw for instant in step.firings],
            }
            for step in plan.jobs
        ],
    }


def apply_plan(client: Client, plan: Plan, *, again: str = "Apply the file again") -> None:
    """Says what it does; raises what the server refused, after saying what had been done by then."""
    if plan.is_empty:
        say("Nothing to change.")
        return
    done: list[str] = []
    ids = dict(plan.known)
    for step in plan.steps:
        if step.action == "unchanged":
            continue
        try:
            if isinstance(step, CalendarStep):
                _apply_calendar(client, step)
            else:
                ids[step.name] = _apply_job(client, step, ids)
        except CliError:
            before = f"Applied before it: {_listed(done)}." if done else "Nothing was applied before it."
            say(f"{step.where}: {step.name} could not be applied. {before} {again} once it is right.")
            raise
        done.append(step.name)
    say(f"Applied {len(done)}: {_listed(done)}.")


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {rest} others" if rest > 0 else "")


def _apply_calendar(client: Client, step: CalendarStep) -> None:
    if step.stored is None:
        client.create_calendar(step.calendar.name, step.calendar.dates)
    else:
        client.edit_calendar(step.stored.id, dates=step.calendar.dates)


def _apply_job(client: Client, step: JobStep, ids: dict[str, str]) -> str:
    job = step.job
    body = _own_fields(step)
    if step.changes_field("runtime", "script"):
        body |= _program(client, job)
    if step.changes_field("stdin"):
        body |= {"stdin": None} if job.stdin is None else _stdin(client, job.stdin)
    if step.changes_field("inputs"):
        body["inputs"] = [{"path": path, "artifact": upload_file(client, file, UPLOADS)} for path, file in job.inputs]
    if step.changes_field("dependencies"):
        body["dependencies"] = [
            {"job": after.job if is_id(after.job) else ids[after.job], "condition": after.condition}
            for after in job.dependencies
        ]
    if step.changes_field("schedules"):
        body["schedules"] = [match.edit for match in step.matching.matches]
    saved = (
        client.submit_job({"name": job.name, **body}) if step.stored is None else client.edit_job(step.stored.id, body)
    )
    for warning in saved.warnings:
        say(f"Note on {job.name}: {warning}")
    return saved.id


def _own_fields(step: JobStep) -> dict[str, object]:
    """For a new job what is not the default; for another what changes."""
    fields = step.job.fields
    if step.stored is None:
        return {name: value for name, value in fields.items() if value != _DEFAULTS[name]}
    changed = {change.field.partition(".")[0] for change in step.changes}
    return {name: value for name, value in fields.items() if name in changed}


def _program(client: Client, job: JobManifest) -> dict[str, object]:
    if job.program.file is not None:
        return prepare_program(client, job.program.file, job.runtime, watch=UPLOADS)
    return {"runtime": job.runtime.value, "script": job.program.text}


def _stdin(client: Client, source: Source) -> dict[str, object]:
    return {"stdin": source.text} if source.file is None else prepare_stdin(client, source.file, UPLOADS)


def _calendar_shown(step: CalendarStep) -> str:
    wanted = set(step.calendar.dates)
    if step.stored is None:
        return f"create, {len(wanted)} dates"
    more, less = sorted(wanted - set(step.stored.dates)), sorted(set(step.stored.dates) - wanted)
    parts = [*(f"+ {day}" for day in more), *(f"- {day}" for day in less)]
    return ", ".join(parts) or "unchanged"


def _change_lines(change: Change) -> Iterator[str]:
    if isinstance(change.old, list) and isinstance(change.new, list) and change.field in ("schedules", "dependencies"):
        yield from (f"{change.field}: - {each}" for each in change.old if each not in change.new)
        yield from (f"{change.field}: + {each}" for each in change.new if each not in change.old)
        if set(change.old) == set(change.new):
            yield f"{change.field}: {len(change.old)} → {len(change.new)}, or another start"
        return
    yield f"{change.field}: {_short(change.old)} → {_short(change.new)}"


def _short(value: object) -> str:
    if isinstance(value, str) and value.startswith("sha256:"):
        return value[: len("sha256:") + 12]
    shown = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}…"


def _when(step: JobStep) -> str:
    if step.stored is not None and step.stored.status == "paused":
        return "paused: does not fire until it is resumed"
    if step.firings:
        return f"fires {', '.join(_firing(instant) for instant in step.firings)}{_hashed(step)}"
    if step.job.schedules:
        return "does not fire any more"
    if step.job.dependencies:
        return f"runs after {', '.join(after.job for after in step.job.dependencies)}"
    return "runs once, as soon as it is created" if step.stored is None else "runs when it is told to"


def _firing(instant: Instant) -> str:
    return shown_time(instant.local) + (f" ({instant.note})" if instant.note else "")


def _hashed(step: JobStep) -> str:
    """Only a stored schedule has the id that its H is computed from."""
    new = [str(match.wanted.get("cron", "")) for match in step.matching.matches if match.stored is None]
    return " (H: examples, it gets its own value when it is stored)" if any(map(_HASH.search, new)) else ""
