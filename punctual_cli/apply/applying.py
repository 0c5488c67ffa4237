"""Display and execution of a plan, in the order of dependencies, until the first refusal.

Steps applied before a refusal remain. Applying the file again continues from there, because unchanged jobs are skipped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from punctual_cli.apply.manifests import JOB_DEFAULTS, REQUIREMENTS_DEFAULTS, RETRY_DEFAULTS, JobManifest, Source
from punctual_cli.apply.planning import CalendarStep, FieldChange, JobStep, Plan
from punctual_cli.argument_parsing import is_uuid
from punctual_cli.output.progress_bars import UPLOAD_PROGRESS
from punctual_cli.output.results import Format, write_data
from punctual_cli.output.terminal import format_time, write_message, write_result
from punctual_client.errors import PunctualError
from punctual_client.json_fields import JsonObject
from punctual_client.programs import prepare_program, prepare_stdin, upload_file

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.jobs import Instant

_SIGNS = {"create": "+", "change": "~", "unchanged": "="}
_FIELD_DEFAULTS = {**JOB_DEFAULTS, "requirements": REQUIREMENTS_DEFAULTS, "retry": RETRY_DEFAULTS}
MAX_VALUE_CHARS = 60
MAX_NAMES_LISTED = 20
_CRON_HASH = re.compile(r"(?:^|[ ,])H(?:$|[ ,/(])")


def show_plan(plan: Plan, output: Format) -> None:
    if output in (Format.JSON, Format.YAML):
        write_data(plan_as_json(plan), output)
        return
    for calendar in plan.calendars:
        write_result(f"{_SIGNS[calendar.action]} calendar {calendar.name}: {_describe_calendar(calendar)}")
    for step in plan.jobs:
        write_result(f"{_SIGNS[step.action]} {step.name}: {step.action}")
        for change in step.changes:
            for line in _format_change(change):
                write_result(f"    {line}")
        write_result(f"    {_describe_firings(step)}")
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


def apply_plan(client: Client, plan: Plan, *, retry_hint: str = "Apply the file again") -> None:
    """Apply every step; when the server refuses one, print what was applied before and raise."""
    if plan.is_empty:
        write_message("Nothing to change.")
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
        except PunctualError:
            before = f"Applied before it: {_join_names(done)}." if done else "Nothing was applied before it."
            write_message(
                f"{step.where}: {step.name} could not be applied. {before} {retry_hint} once it is corrected."
            )
            raise
        done.append(step.name)
    write_message(f"Applied {len(done)}: {_join_names(done)}.")


def _join_names(names: Sequence[str]) -> str:
    rest = len(names) - MAX_NAMES_LISTED
    return ", ".join(names[:MAX_NAMES_LISTED]) + (f" and {rest} others" if rest > 0 else "")


def _apply_calendar(client: Client, step: CalendarStep) -> None:
    if step.stored is None:
        client.create_calendar(step.calendar.name, step.calendar.dates)
    else:
        client.edit_calendar(step.stored.id, dates=step.calendar.dates)


def _apply_job(client: Client, step: JobStep, ids: dict[str, str]) -> str:
    job = step.job
    body = _fields_to_send(step)
    if step.changes_field("runtime", "script"):
        body |= _program_fields(client, job)
    if step.changes_field("stdin"):
        body |= {"stdin": None} if job.stdin is None else _stdin_fields(client, job.stdin)
    if step.changes_field("inputs"):
        body["inputs"] = [
            {"path": path, "artifact": upload_file(client, file, UPLOAD_PROGRESS)} for path, file in job.inputs
        ]
    if step.changes_field("dependencies"):
        body["dependencies"] = [
            {"job": after.job if is_uuid(after.job) else ids[after.job], "condition": after.condition}
            for after in job.dependencies
        ]
    if step.changes_field("schedules"):
        body["schedules"] = [match.edit for match in step.matching.matches]
    saved = (
        client.submit_job({"name": job.name, **body}) if step.stored is None else client.edit_job(step.stored.id, body)
    )
    for warning in saved.warnings:
        write_message(f"Note on {job.name}: {warning}")
    return saved.id


def _fields_to_send(step: JobStep) -> dict[str, object]:
    """Return the fields that differ from the defaults, or from the stored job."""
    fields = step.job.fields
    if step.stored is None:
        return {name: value for name, value in fields.items() if value != _FIELD_DEFAULTS[name]}
    changed = {change.field.partition(".")[0] for change in step.changes}
    return {name: value for name, value in fields.items() if name in changed}


def _program_fields(client: Client, job: JobManifest) -> dict[str, object]:
    if job.program.file is not None:
        return prepare_program(client, job.program.file, job.runtime, progress=UPLOAD_PROGRESS)
    return {"runtime": job.runtime.value, "script": job.program.text}


def _stdin_fields(client: Client, source: Source) -> dict[str, object]:
    return {"stdin": source.text} if source.file is None else prepare_stdin(client, source.file, UPLOAD_PROGRESS)


def _describe_calendar(step: CalendarStep) -> str:
    wanted = set(step.calendar.dates)
    if step.stored is None:
        return f"create, {len(wanted)} dates"
    added, removed = sorted(wanted - set(step.stored.dates)), sorted(set(step.stored.dates) - wanted)
    parts = [*(f"+ {day}" for day in added), *(f"- {day}" for day in removed)]
    return ", ".join(parts) or "unchanged"


def _format_change(change: FieldChange) -> Iterator[str]:
    if isinstance(change.old, list) and isinstance(change.new, list) and change.field in ("schedules", "dependencies"):
        yield from (f"{change.field}: - {each}" for each in change.old if each not in change.new)
        yield from (f"{change.field}: + {each}" for each in change.new if each not in change.old)
        if set(change.old) == set(change.new):
            yield f"{change.field}: {len(change.old)} → {len(change.new)}, or a new start"
        return
    yield f"{change.field}: {_format_value(change.old)} → {_format_value(change.new)}"


def _format_value(value: object) -> str:
    if isinstance(value, str) and value.startswith("sha256:"):
        return value[: len("sha256:") + 12]
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


def _describe_firings(step: JobStep) -> str:
    if step.stored is not None and step.stored.status == "paused":
        return "paused: does not fire until it is resumed"
    if step.firings:
        return f"fires {', '.join(_format_instant(instant) for instant in step.firings)}{_describe_hash(step)}"
    if step.job.schedules:
        return "does not fire any more"
    if step.job.dependencies:
        return f"runs after {', '.join(after.job for after in step.job.dependencies)}"
    return "runs once, as soon as it is created" if step.stored is None else "runs on request only"


def _format_instant(instant: Instant) -> str:
    return format_time(instant.local) + (f" ({instant.note})" if instant.note else "")


def _describe_hash(step: JobStep) -> str:
    """Note that the H of a new schedule is only an example: it is computed from the stored id."""
    new = [str(match.wanted.get("cron", "")) for match in step.matching.matches if match.stored is None]
    return " (H: examples, the final value is chosen when it is stored)" if any(map(_CRON_HASH.search, new)) else ""
