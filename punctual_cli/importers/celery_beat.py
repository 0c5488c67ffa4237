"""Import of Celery beat entries as jobs that send the same tasks; a schedule that cannot be converted is skipped.

A Celery task is a function and a job is a program, so all jobs run one script that reads the task from its environment
(BEAT_TASK, BEAT_ARGS, BEAT_KWARGS, BEAT_QUEUE, …).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from punctual_cli.apply.yaml_reading import INVALID_CHARACTERS
from punctual_cli.importers.import_result import ImportedJob, ImportResult, SkippedEntry, clean_name
from punctual_client.errors import UsageError
from punctual_client.json_fields import JsonObject

READER_SCRIPT = Path(__file__).with_name("celery_beat_reader.py")
READ_TIMEOUT_SECONDS = 60
MAX_INTERVAL = 10**15
DEFAULT_SCRIPT = """\
# Sends the task to Celery's workers, as beat did.
if ! command -v celery >/dev/null; then
    echo "celery was not found: install it where sandboxes see it, under /usr of the workers." >&2
    exit 127
fi
set -- --args "$BEAT_ARGS" --kwargs "$BEAT_KWARGS"
[ -z "$BEAT_QUEUE" ] || set -- "$@" --queue "$BEAT_QUEUE"
[ -z "$BEAT_EXCHANGE" ] || set -- "$@" --exchange "$BEAT_EXCHANGE"
[ -z "$BEAT_ROUTING_KEY" ] || set -- "$@" --routing-key "$BEAT_ROUTING_KEY"
[ -z "$BEAT_EXPIRES" ] || set -- "$@" --expires "$BEAT_EXPIRES"
exec celery --broker "$CELERY_BROKER_URL" call "$BEAT_TASK" "$@"
"""
_CRONTAB_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_FIELD_BOUNDS = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day_of_month": (1, 31),
    "month_of_year": (1, 12),
    "day_of_week": (0, 6),
}
_PERIOD_SECONDS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0, "microseconds": 1e-6}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RANGE = re.compile(r"(\w+)-(\w+)(/\d+)?", re.ASCII)
# A weekday restricted to one of these day ranges is the nth weekday of the month.
_NTH_WEEK_BY_DAYS = {"1-7": 1, "8-14": 2, "15-21": 3, "22-28": 4}


@dataclass(frozen=True)
class BeatEntry:
    """An entry of beat, from a fixture or a configuration."""

    name: str
    task: str
    args: object
    kwargs: object
    schedule: Mapping[str, object]  # in the shape of a manifest
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class JobTemplate:
    """The program of all imported jobs, with its secret and network access."""

    runtime: str
    script: str
    secret: str | None
    network: bool


def read_fixture(content: bytes, file: str, template: JobTemplate) -> ImportResult:
    """Read the output of `manage.py dumpdata django_celery_beat`."""
    try:
        rows: object = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"{file} is not JSON: use the output of manage.py dumpdata django_celery_beat.") from None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("fields"), dict) for row in rows
    ):
        raise UsageError(f"{file} is not a fixture: use the output of manage.py dumpdata django_celery_beat.")
    tables: dict[str, dict[object, JsonObject]] = {}
    for row in rows:
        tables.setdefault(str(row.get("model")), {})[str(row.get("pk"))] = row["fields"]
    tasks = tables.get("django_celery_beat.periodictask", {})
    read = [
        (f"{file}, task {key}", str(row.get("name")), partial(_entry_from_row, row, tables))
        for key, row in tasks.items()
    ]
    return _convert_entries(read, template)


def read_app(word: str, python: str, template: JobTemplate) -> ImportResult:
    """Read the `beat_schedule` of an app by importing it in a separate process, with the given Python."""
    try:
        ended = subprocess.run(
            [python, str(READER_SCRIPT), word],
            capture_output=True,
            text=True,
            timeout=READ_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{python} cannot be run ({error}): name another with --python.") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"Importing {word} takes more than {READ_TIMEOUT_SECONDS} s.") from None
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no error message"])[-1]
        raise UsageError(f"{word} could not be imported with {python}: {last}")
    found = json.loads(ended.stdout)
    zone = str(found["timezone"])
    read = [(word, str(each["name"]), partial(_entry_from_config, each, zone)) for each in found["entries"]]
    return _convert_entries(read, template)


def _convert_entries(
    entries: Sequence[tuple[str, str, Callable[[], BeatEntry]]], template: JobTemplate
) -> ImportResult:
    jobs: list[ImportedJob] = []
    skipped: list[SkippedEntry] = []
    for where, name, read in entries:
        try:
            jobs.append(_convert_entry(where, read(), template))
        except ValueError as error:
            skipped.append(SkippedEntry(where, name, str(error)))
    return ImportResult(tuple(jobs), tuple(skipped))


def _convert_entry(where: str, sent: BeatEntry, template: JobTemplate) -> ImportedJob:
    if sent.task.startswith("celery."):
        raise ValueError(f"{sent.task} is Celery's own housekeeping: keep it in Celery.")
    options = dict(sent.options)
    env = {
        "BEAT_TASK": sent.task,
        "BEAT_ARGS": _encode_arguments(sent.args, list),
        "BEAT_KWARGS": _encode_arguments(sent.kwargs, dict),
    }
    for name in ("queue", "exchange", "routing_key", "expires", "priority"):
        value = options.pop(name, None)
        if value is not None and value != "":
            env[f"BEAT_{name.upper()}"] = str(value)
    if any(INVALID_CHARACTERS.search(str(value)) for value in (*env.values(), *sent.schedule.values())):
        raise ValueError("It contains characters that are invalid in text.")
    job: dict[str, object] = {
        "name": clean_name(sent.name),
        "runtime": template.runtime,
        "script": template.script,
        "env": env,
        "schedules": [dict(sent.schedule)],
    }
    if template.secret:
        job["secrets"] = [{"name": template.secret, "env": "CELERY_BROKER_URL"}]
    if template.network:
        job["network"] = True
    warnings = [f"The option {name} is not imported." for name in options]
    if "BEAT_PRIORITY" in env and template.script == DEFAULT_SCRIPT:
        warnings.append("celery call has no priority option: BEAT_PRIORITY is set but not sent.")
    return ImportedJob(where, job, tuple(warnings), sent.task)


def _encode_arguments(value: object, kind: type) -> str:
    if not isinstance(value, kind) or '{"not json"' in (text := json.dumps(value)):
        raise ValueError("Its arguments are not JSON.")
    return text


def _entry_from_row(row: JsonObject, tables: Mapping[str, Mapping[object, JsonObject]]) -> BeatEntry:
    """Convert a row of django-celery-beat's periodic tasks."""
    if row.get("enabled") is not True:
        raise ValueError("It is disabled.")
    options = {
        name: row[name] for name in ("queue", "exchange", "routing_key", "priority") if row.get(name) is not None
    }
    if row.get("expire_seconds") is not None:
        options["expires"] = row["expire_seconds"]
    if row.get("headers") not in (None, "", "{}"):
        options["headers"] = row["headers"]
    schedule = _schedule_from_row(row, tables)
    if row.get("one_off") is True and "at" not in schedule:
        schedule["max_count"] = 1
    for theirs, ours in (("start_time", "starts_at"), ("expires", "ends_at")):
        if row.get(theirs) is not None:
            schedule[ours] = _parse_instant(row[theirs], theirs)
    return BeatEntry(
        name=str(row.get("name") or row.get("task")),
        task=_task_name(row.get("task")),
        args=_decode_arguments(row.get("args") or "[]"),
        kwargs=_decode_arguments(row.get("kwargs") or "{}"),
        schedule=schedule,
        options=options,
    )


def _schedule_from_row(row: JsonObject, tables: Mapping[str, Mapping[object, JsonObject]]) -> dict[str, object]:
    for kind in ("interval", "crontab", "solar", "clocked"):
        if row.get(kind) is None:
            continue
        found = tables.get(f"django_celery_beat.{kind}schedule", {}).get(str(row[kind]))
        if found is None:
            raise ValueError(f"Its {kind} schedule is not in the file: dump the whole of django_celery_beat.")
        match kind:
            case "interval":
                every, period = found.get("every"), _PERIOD_SECONDS.get(str(found.get("period")))
                if not isinstance(every, int) or period is None:
                    raise ValueError("Its interval is invalid.")
                return _interval_schedule(every, period)
            case "crontab":
                zone = str(found.get("timezone") or "UTC")
                return {
                    "cron": to_cron_expression({name: str(found.get(name, "*")) for name in _CRONTAB_FIELDS}),
                    "timezone": zone,
                }
            case "solar":
                return _solar_schedule(found.get("event"), found.get("latitude"), found.get("longitude"))
            case _:
                at = _parse_instant(found.get("clocked_time"), "clocked_time")
                if datetime.fromisoformat(at) <= datetime.now(UTC):
                    raise ValueError(f"Its time has passed: {at}.")
                return {"at": at}
    raise ValueError("It has no schedule.")


def _entry_from_config(entry: JsonObject, zone: str) -> BeatEntry:
    """Convert an entry of `beat_schedule` as the reader script prints it."""
    schedule: dict[str, object]
    match entry["schedule"]:
        case {"crontab": dict(fields)}:
            schedule = {"cron": to_cron_expression(fields), "timezone": zone}
        case {"seconds": int() | float() as seconds}:
            schedule = _interval_schedule(float(seconds))
        case {"solar": {"event": event, "latitude": latitude, "longitude": longitude}}:
            schedule = _solar_schedule(event, latitude, longitude)
        case other:
            raise ValueError(f"Its schedule type is unknown: {other}.")
    options = entry["options"]
    sent = BeatEntry(str(entry["name"]), _task_name(entry["task"]), entry["args"], entry["kwargs"], schedule)
    return replace(sent, options=options) if isinstance(options, dict) else sent


def _task_name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("It names no task.")
    return value


def _decode_arguments(text: object) -> object:
    try:
        value: object = json.loads(str(text))
    except (ValueError, RecursionError):
        raise ValueError("Its arguments are not JSON.") from None
    return value


def _interval_schedule(count: float, period: float = 1.0) -> dict[str, object]:
    if not abs(count) <= MAX_INTERVAL:
        raise ValueError("Its interval is too long.")
    if (seconds := count * period) < 1:
        raise ValueError("It runs more often than once a second, which Punctual does not support.")
    return {"every_seconds": int(seconds) if seconds.is_integer() else seconds}


def _solar_schedule(event: object, latitude: object, longitude: object) -> dict[str, object]:
    try:
        return {"solar": f"{event} {float(str(latitude)):.6f},{float(str(longitude)):.6f}"}
    except ValueError:
        raise ValueError("Its place is invalid.") from None


def _parse_instant(value: object, name: str) -> str:
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"Its {name} is not a time.") from None
    if instant.tzinfo is None:
        raise ValueError(f"Its {name} has no offset: dump it with USE_TZ.")
    try:
        return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise ValueError(f"Its {name} is before the year 1 or after 9999.") from None


def to_cron_expression(fields: Mapping[str, str]) -> str:
    """Convert crontab fields; if both day fields are restricted, Celery needs both to match, cron either."""
    minute, hour, day, month, weekday = (_convert_field(name, str(fields[name])) for name in _CRONTAB_FIELDS)
    if not day.startswith("*") and not weekday.startswith("*"):
        week = _NTH_WEEK_BY_DAYS.get(day)
        if week is None or not re.fullmatch(r"[0-7](?:,[0-7])*", weekday):
            raise ValueError(
                "It requires both the day of the month and the weekday to match; cron would run it when either does. "
                "Keep one of them, and let the program check the other."
            )
        day, weekday = "*", ",".join(f"{each}#{week}" for each in weekday.split(","))
    return f"{minute} {hour} {day} {month} {weekday}"


def _convert_field(name: str, text: str) -> str:
    parts = [_convert_part(name, part) for part in "".join(text.lower().split()).split(",")]
    return "*" if "*" in parts else ",".join(parts)


def _convert_part(name: str, part: str) -> str:
    if re.fullmatch(r"\*(/[1-9]\d*)?", part, re.ASCII):
        return part
    if found := _RANGE.fullmatch(part):
        first, last = _parse_number(name, found[1]), _parse_number(name, found[2])
        if first <= last:
            return f"{first}-{last}{found[3] or ''}"
        # A range that wraps around, which cron does not support.
        lowest, highest = _FIELD_BOUNDS[name]
        values = [*range(first, highest + 1), *range(lowest, last + 1)][:: int((found[3] or "/1")[1:]) or 1]
        return ",".join(map(str, sorted(values)))
    return str(_parse_number(name, part))


def _parse_number(name: str, word: str) -> int:
    names: tuple[str, ...] = {"month_of_year": _MONTHS, "day_of_week": _WEEKDAYS}.get(name, ())
    if word[:3] in names and word.isalpha():
        return names.index(word[:3]) + _FIELD_BOUNDS[name][0]
    if not re.fullmatch(r"\d{1,2}", word, re.ASCII):
        raise ValueError(f"{word!r} in its {name} is invalid.")
    return int(word)
