"""What Celery beat sends, as jobs that send it: schedules are carried over exactly, or left out with the reason.

A Celery task is a function of somebody's code, and a job is a program: so all jobs have one script for a program, that
finds what to do in its environment (BEAT_TASK, BEAT_ARGS, BEAT_KWARGS, BEAT_QUEUE, …).
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

from cli.errors import UsageMistakeError
from cli.imported import Imported, Imports, LeftOut, plain_name
from cli.yaml_reading import UNPRINTABLE

READER = Path(__file__).with_name("celery_beat_reader.py")
LONGEST_READ_SECONDS = 60
LONGEST_INTERVAL = 10**15
DEFAULT_SCRIPT = """\
# Sends the task to Celery's workers, as beat did.
if ! command -v celery >/dev/null; then
    echo "celery is not to be found: install it where sandboxes see it, under /usr of the workers." >&2
    exit 127
fi
set -- --args "$BEAT_ARGS" --kwargs "$BEAT_KWARGS"
[ -z "$BEAT_QUEUE" ] || set -- "$@" --queue "$BEAT_QUEUE"
[ -z "$BEAT_EXCHANGE" ] || set -- "$@" --exchange "$BEAT_EXCHANGE"
[ -z "$BEAT_ROUTING_KEY" ] || set -- "$@" --routing-key "$BEAT_ROUTING_KEY"
[ -z "$BEAT_EXPIRES" ] || set -- "$@" --expires "$BEAT_EXPIRES"
exec celery --broker "$CELERY_BROKER_URL" call "$BEAT_TASK" "$@"
"""
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_SIZES = {"minute": (0, 59), "hour": (0, 23), "day_of_month": (1, 31), "month_of_year": (1, 12), "day_of_week": (0, 6)}
_PERIODS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0, "microseconds": 1e-6}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RANGE = re.compile(r"(\w+)-(\w+)(/\d+)?", re.ASCII)
# A weekday on certain days of the month is, in these weeks, the nth of the month.
_WEEKS = {"1-7": 1, "8-14": 2, "15-21": 3, "22-28": 4}

Object = Mapping[str, object]


@dataclass(frozen=True)
class Sent:
    """One entry of beat's, whichever way it was written down."""

    name: str
    task: str
    args: object
    kwargs: object
    schedule: Mapping[str, object]  # as a file for `apply` has it
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Wrapping:
    """The program that all jobs have, and what it is given."""

    runtime: str
    script: str
    secret: str | None
    network: bool


def read_fixture(content: bytes, file: str, wrapping: Wrapping) -> Imports:
    """What `manage.py dumpdata django_celery_beat` prints."""
    try:
        rows: object = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageMistakeError(
            f"{file} is not JSON: give what manage.py dumpdata django_celery_beat prints."
        ) from None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("fields"), dict) for row in rows
    ):
        raise UsageMistakeError(f"{file} is no fixture: give what manage.py dumpdata django_celery_beat prints.")
    tables: dict[str, dict[object, Object]] = {}
    for row in rows:
        tables.setdefault(str(row.get("model")), {})[str(row.get("pk"))] = row["fields"]
    tasks = tables.get("django_celery_beat.periodictask", {})
    read = [(f"{file}, task {key}", str(row.get("name")), partial(_stored, row, tables)) for key, row in tasks.items()]
    return _imports(read, wrapping)


def read_app(word: str, python: str, wrapping: Wrapping) -> Imports:
    """Imports the app, with the Python that it is told: it is the user's own code, in a process of its own."""
    try:
        ended = subprocess.run(
            [python, str(READER), word], capture_output=True, text=True, timeout=LONGEST_READ_SECONDS, check=False
        )
    except (OSError, ValueError) as error:
        raise UsageMistakeError(f"{python} cannot be run ({error}): name another with --python.") from None
    except subprocess.TimeoutExpired:
        raise UsageMistakeError(f"Importing {word} takes more than {LONGEST_READ_SECONDS} s.") from None
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UsageMistakeError(f"{word} could not be imported with {python}: {last}")
    found = json.loads(ended.stdout)
    zone = str(found["timezone"])
    read = [(word, str(each["name"]), partial(_written, each, zone)) for each in found["entries"]]
    return _imports(read, wrapping)


def _imports(entries: Sequence[tuple[str, str, Callable[[], Sent]]], wrapping: Wrapping) -> Imports:
    jobs: list[Imported] = []
    left_out: list[LeftOut] = []
    for where, name, read in entries:
        try:
            jobs.append(_job(where, read(), wrapping))
        except ValueError as refusal:
            left_out.append(LeftOut(where, name, str(refusal)))
    return Imports(tuple(jobs), tuple(left_out))


def _job(where: str, sent: Sent, wrapping: Wrapping) -> Imported:
    if sent.task.startswith("celery."):
        raise ValueError(f"{sent.task} is Celery's own housekeeping: leave it to Celery.")
    options = dict(sent.options)
    env = {"BEAT_TASK": sent.task, "BEAT_ARGS": _json(sent.args, list), "BEAT_KWARGS": _json(sent.kwargs, dict)}
    for name in ("queue", "exchange", "routing_key", "expires", "priority"):
        value = options.pop(name, None)
        if value is not None and value != "":
            env[f"BEAT_{name.upper()}"] = str(value)
    if any(UNPRINTABLE.search(str(value)) for value in (*env.values(), *sent.schedule.values())):
        raise ValueError("There are characters in it that no text has.")
    job: dict[str, object] = {
        "name": plain_name(sent.name),
        "runtime": wrapping.runtime,
        "script": wrapping.script,
        "env": env,
        "schedules": [dict(sent.schedule)],
    }
    if wrapping.secret:
        job["secrets"] = [{"name": wrapping.secret, "env": "CELERY_BROKER_URL"}]
    if wrapping.network:
        job["network"] = True
    warnings = [f"The option {name} is not carried over." for name in options]
    if "BEAT_PRIORITY" in env and wrapping.script == DEFAULT_SCRIPT:
        warnings.append("celery call knows no priority: it is in BEAT_PRIORITY, and not sent.")
    return Imported(where, job, tuple(warnings), sent.task)


def _json(value: object, kind: type) -> str:
    if not isinstance(value, kind) or '{"not json"' in (text := json.dumps(value)):
        raise ValueError("Its arguments are not JSON.")
    return text


def _stored(row: Object, tables: Mapping[str, Mapping[object, Object]]) -> Sent:
    """A row of django-celery-beat's periodic tasks."""
    if row.get("enabled") is not True:
        raise ValueError("It is disabled.")
    options = {
        name: row[name] for name in ("queue", "exchange", "routing_key", "priority") if row.get(name) is not None
    }
    if row.get("expire_seconds") is not None:
        options["expires"] = row["expire_seconds"]
    if row.get("headers") not in (None, "", "{}"):
        options["headers"] = row["headers"]
    schedule = _stored_schedule(row, tables)
    if row.get("one_off") is True and "at" not in schedule:
        schedule["max_count"] = 1
    for theirs, ours in (("start_time", "starts_at"), ("expires", "ends_at")):
        if row.get(theirs) is not None:
            schedule[ours] = _moment(row[theirs], theirs)
    return Sent(
        name=str(row.get("name") or row.get("task")),
        task=_task(row.get("task")),
        args=_decoded(row.get("args") or "[]"),
        kwargs=_decoded(row.get("kwargs") or "{}"),
        schedule=schedule,
        options=options,
    )


def _stored_schedule(row: Object, tables: Mapping[str, Mapping[object, Object]]) -> dict[str, object]:
    for kind in ("interval", "crontab", "solar", "clocked"):
        if row.get(kind) is None:
            continue
        found = tables.get(f"django_celery_beat.{kind}schedule", {}).get(str(row[kind]))
        if found is None:
            raise ValueError(f"Its {kind} schedule is not in the file: dump the whole of django_celery_beat.")
        match kind:
            case "interval":
                every, period = found.get("every"), _PERIODS.get(str(found.get("period")))
                if not isinstance(every, int) or period is None:
                    raise ValueError("Its interval is not understood.")
                return _every(every, period)
            case "crontab":
                zone = str(found.get("timezone") or "UTC")
                return {"cron": cron_of({name: str(found.get(name, "*")) for name in _FIELDS}), "timezone": zone}
            case "solar":
                return _solar(found.get("event"), found.get("latitude"), found.get("longitude"))
            case _:
                at = _moment(found.get("clocked_time"), "clocked_time")
                if datetime.fromisoformat(at) <= datetime.now(UTC):
                    raise ValueError(f"Its time has passed: {at}.")
                return {"at": at}
    raise ValueError("It has no schedule.")


def _written(entry: Object, zone: str) -> Sent:
    """An entry of `beat_schedule`, as the reader prints it."""
    carried: dict[str, object]
    match entry["schedule"]:
        case {"crontab": dict(fields)}:
            carried = {"cron": cron_of(fields), "timezone": zone}
        case {"seconds": int() | float() as seconds}:
            carried = _every(float(seconds))
        case {"solar": {"event": event, "latitude": latitude, "longitude": longitude}}:
            carried = _solar(event, latitude, longitude)
        case other:
            raise ValueError(f"Its schedule is not known: {other}.")
    options = entry["options"]
    sent = Sent(str(entry["name"]), _task(entry["task"]), entry["args"], entry["kwargs"], carried)
    return replace(sent, options=options) if isinstance(options, dict) else sent


def _task(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("It names no task.")
    return value


def _decoded(text: object) -> object:
    try:
        value: object = json.loads(str(text))
    except (ValueError, RecursionError):
        raise ValueError("Its arguments are not JSON.") from None
    return value


def _every(count: float, period: float = 1.0) -> dict[str, object]:
    if not abs(count) <= LONGEST_INTERVAL:
        raise ValueError("Its interval is too long.")
    if (seconds := count * period) < 1:
        raise ValueError("It runs more often than once a second, which Punctual does not.")
    return {"every_seconds": int(seconds) if seconds.is_integer() else seconds}


def _solar(event: object, latitude: object, longitude: object) -> dict[str, object]:
    try:
        return {"solar": f"{event} {float(str(latitude)):.6f},{float(str(longitude)):.6f}"}
    except ValueError:
        raise ValueError("Its place is not understood.") from None


def _moment(value: object, name: str) -> str:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"Its {name} is not a time.") from None
    if moment.tzinfo is None:
        raise ValueError(f"Its {name} has no offset: dump it with USE_TZ.")
    try:
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise ValueError(f"Its {name} is before the year 1 or after 9999.") from None


def cron_of(fields: Mapping[str, str]) -> str:
    """Celery runs when all five match; cron, when one of the two day fields does, if both are restricted."""
    minute, hour, day, month, weekday = (_field(name, str(fields[name])) for name in _FIELDS)
    if not day.startswith("*") and not weekday.startswith("*"):
        week = _WEEKS.get(day)
        if week is None or not re.fullmatch(r"[0-7](?:,[0-7])*", weekday):
            raise ValueError(
                "It wants both the day of the month and the weekday to match; cron would run it when either does. "
                "Give it one of them, and have the program look at the other."
            )
        day, weekday = "*", ",".join(f"{each}#{week}" for each in weekday.split(","))
    return f"{minute} {hour} {day} {month} {weekday}"


def _field(name: str, text: str) -> str:
    parts = [_part(name, part) for part in "".join(text.lower().split()).split(",")]
    return "*" if "*" in parts else ",".join(parts)


def _part(name: str, part: str) -> str:
    if re.fullmatch(r"\*(/[1-9]\d*)?", part, re.ASCII):
        return part
    if found := _RANGE.fullmatch(part):
        first, last = _number(name, found[1]), _number(name, found[2])
        if first <= last:
            return f"{first}-{last}{found[3] or ''}"
        # Over the end and on from the beginning, which cron does not know.
        lowest, highest = _SIZES[name]
        values = [*range(first, highest + 1), *range(lowest, last + 1)][:: int((found[3] or "/1")[1:]) or 1]
        return ",".join(map(str, sorted(values)))
    return str(_number(name, part))


def _number(name: str, word: str) -> int:
    names: tuple[str, ...] = {"month_of_year": _MONTHS, "day_of_week": _WEEKDAYS}.get(name, ())
    if word[:3] in names and word.isalpha():
        return names.index(word[:3]) + _SIZES[name][0]
    if not re.fullmatch(r"\d{1,2}", word, re.ASCII):
        raise ValueError(f"{word!r} in its {name} is not understood.")
    return int(word)
