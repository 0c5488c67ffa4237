"""Manifests: the jobs and calendars of a file for `apply`, in the shape of the API, plus references to local files.

A manifest describes each job completely: a missing field has its default, so that deleting a line undoes it. Types are
checked here, with the line number; ranges and rules are checked by the server.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from punctual_cli.apply.yaml_reading import YamlValue, read_documents
from punctual_cli.argument_parsing import (
    DEPENDENCY_CONDITIONS,
    Dependency,
    parse_duration,
    parse_instant,
    parse_timezone,
)
from punctual_client.errors import UsageError
from punctual_client.programs import Runtime, guess_runtime

JOB_DEFAULTS: Mapping[str, object] = {
    "args": [], "env": {}, "secrets": [], "priority": 5, "queue": "default", "team": None,
    "timeout_seconds": 3600, "deadline_seconds": None, "max_concurrency": 1, "overlap": "queue",
    "delivery": "at_least_once", "network": False,
}  # fmt: skip
REQUIREMENTS_DEFAULTS: Mapping[str, object] = {
    "cpu": 0.25, "memory_mb": 128, "disk_mb": 64, "capabilities": [], "resources": {},
}  # fmt: skip
RETRY_DEFAULTS: Mapping[str, object] = {
    "max_attempts": 1, "backoff_seconds": 5, "backoff_factor": 2, "max_backoff_seconds": 3600, "jitter": 0,
    "on_exit_codes": None, "not_on_exit_codes": None, "on_reasons": None,
}  # fmt: skip
SCHEDULE_DEFAULTS: Mapping[str, object] = {
    "timezone": "UTC", "ends_at": None, "jitter_seconds": 0, "catch_up": "latest", "catch_up_window_seconds": None,
    "excluded_dates": [], "calendar": None, "max_count": None,
}  # fmt: skip
MAX_NAME_CHARS = 200
SCHEDULE_KINDS = ("cron", "every_seconds", "delay_seconds", "at", "solar")

_PROGRAM_FIELDS = (
    "name",
    "runtime",
    "script",
    "script_file",
    "stdin",
    "stdin_file",
    "inputs",
    "schedules",
    "dependencies",
)

FieldReader = Callable[[YamlValue], object]


@dataclass(frozen=True)
class Source:
    """Content in the manifest itself or in another file."""

    text: str | None = None
    file: Path | None = None


@dataclass(frozen=True)
class JobManifest:
    name: str
    place: YamlValue = field(repr=False, compare=False)
    runtime: Runtime
    program: Source
    stdin: Source | None
    inputs: tuple[tuple[str, Path], ...]  # path for the program, and local file
    schedules: tuple[Mapping[str, object], ...]  # starts_at only if the file sets it
    dependencies: tuple[Dependency, ...]  # by name or id
    fields: Mapping[str, object]  # all other fields, in the shape of the API, with defaults

    @property
    def where(self) -> str:
        return self.place.where


@dataclass(frozen=True)
class CalendarManifest:
    name: str
    dates: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class Manifest:
    jobs: tuple[JobManifest, ...]
    calendars: tuple[CalendarManifest, ...]


def read_manifest(content: bytes, file: str, folder: Path) -> Manifest:
    """Parse a manifest whose relative paths start at `folder`."""
    jobs: dict[str, JobManifest] = {}
    calendars: dict[str, CalendarManifest] = {}
    for document in read_documents(content, file):
        parts = YamlValue(document, document.value).fields(("calendars", "jobs"))
        for place in parts["calendars"].entries() if "calendars" in parts else ():
            calendar = _read_calendar(place)
            if calendar.name in calendars:
                raise place.refusal(f"A second calendar is called {calendar.name!r}.")
            calendars[calendar.name] = calendar
        for place in parts["jobs"].entries() if "jobs" in parts else ():
            job = _read_job(place, folder)
            if job.name in jobs:
                raise place.refusal(f"A second job is called {job.name!r}: in a file names tell jobs apart.")
            jobs[job.name] = job
    if not jobs and not calendars:
        raise UsageError(f"{file} contains neither jobs: nor calendars:.")
    return Manifest(tuple(jobs.values()), tuple(calendars.values()))


def _read_calendar(place: YamlValue) -> CalendarManifest:
    parts = place.fields(("name", "dates"))
    return CalendarManifest(
        _read_name(place, parts), tuple(_read_dates(parts["dates"]) if "dates" in parts else ()), place.where
    )


def _read_job(place: YamlValue, folder: Path) -> JobManifest:
    known = [*_PROGRAM_FIELDS, *JOB_DEFAULTS, "requirements", "retry", "timeout", "deadline"]
    parts = place.fields(known)
    name = _read_name(place, parts)
    program = _read_source(place, parts, "script", folder)
    if program is None:
        raise place.refusal("The job has no program: give it a script or a script_file.")
    return JobManifest(
        name=name,
        place=place,
        runtime=_read_runtime(place, parts, program),
        program=program,
        stdin=_read_source(place, parts, "stdin", folder),
        inputs=tuple(_read_input(each, folder) for each in _list_entries(parts, "inputs")),
        schedules=tuple(_read_schedule(each) for each in _list_entries(parts, "schedules")),
        dependencies=tuple(_read_dependency(each) for each in _list_entries(parts, "dependencies")),
        fields={
            **copy.deepcopy(dict(JOB_DEFAULTS)),
            **_read_fields(
                place, {key: part for key, part in parts.items() if key not in _PROGRAM_FIELDS}, _JOB_READERS
            ),
            "requirements": _read_requirements(parts),
            "retry": _read_retry_policy(parts),
        },
    )


def _read_name(place: YamlValue, parts: Mapping[str, YamlValue]) -> str:
    if "name" not in parts:
        raise place.refusal("A name is missing.")
    name = parts["name"].text()
    if not name or name != name.strip() or not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise parts["name"].refusal(
            f"A name is a line of at most {MAX_NAME_CHARS} characters, without blanks at its ends."
        )
    return name


def _read_source(place: YamlValue, parts: Mapping[str, YamlValue], key: str, folder: Path) -> Source | None:
    inline, file = parts.get(key), parts.get(f"{key}_file")
    if inline is not None and file is not None:
        raise file.refusal(f"Give either {key} or {key}_file.")
    if inline is not None and inline.value is not None:
        if not inline.text():
            raise inline.refusal("This is empty.")
        return Source(text=inline.text())
    return None if file is None else Source(file=_read_file_path(file, folder))


def _read_file_path(place: YamlValue, folder: Path) -> Path:
    path = folder / place.text()
    try:
        if path.is_file():
            return path
    except OSError as error:
        raise place.refusal(f"This cannot name a file: {error.strerror or error}.") from None
    raise place.refusal(f"There is no file {path}.")


def _read_runtime(place: YamlValue, parts: Mapping[str, YamlValue], program: Source) -> Runtime:
    if "runtime" in parts:
        try:
            return Runtime(parts["runtime"].text())
        except ValueError:
            raise parts["runtime"].refusal(f"The runtime must be one of {', '.join(Runtime)}.") from None
    try:
        if program.file is None:
            return guess_runtime(Path("script"), (program.text or "").encode()[:256])
        with program.file.open("rb") as opened:
            return guess_runtime(program.file, opened.read(256))
    except OSError as error:
        raise place.refusal(f"{program.file} cannot be read: {error.strerror or error}.") from None
    except UsageError:
        raise place.refusal("The runtime of the program cannot be guessed: set runtime.") from None


def _read_input(place: YamlValue, folder: Path) -> tuple[str, Path]:
    parts = place.fields(("path", "file"))
    for key in ("path", "file"):
        if key not in parts:
            raise place.refusal(f"An input has a path, where the program finds it, and a file: {key} is missing.")
    return parts["path"].text(), _read_file_path(parts["file"], folder)


def _read_dependency(place: YamlValue) -> Dependency:
    if isinstance(place.value, str):
        return Dependency(place.value, "success")
    parts = place.fields(("job", "condition"))
    if "job" not in parts:
        raise place.refusal("The name of a job is missing.")
    condition = parts["condition"].text() if "condition" in parts else "success"
    if condition not in DEPENDENCY_CONDITIONS:
        raise parts["condition"].refusal(f"The condition must be one of {', '.join(DEPENDENCY_CONDITIONS)}.")
    return Dependency(parts["job"].text(), condition)


def _read_schedule(place: YamlValue) -> dict[str, object]:
    durations = [
        name.removesuffix("_seconds") for name in (*SCHEDULE_KINDS, *SCHEDULE_DEFAULTS) if name.endswith("_seconds")
    ]
    parts = place.fields([*SCHEDULE_KINDS, *durations, "starts_at", *SCHEDULE_DEFAULTS])
    zone = parts["timezone"].text() if "timezone" in parts else None
    given = _read_fields(
        place, {key: part for key, part in parts.items() if key not in _INSTANT_FIELDS}, _SCHEDULE_READERS
    )
    given |= {key: _read_instant(parts[key], zone) for key in _INSTANT_FIELDS if key in parts}
    if len([name for name in SCHEDULE_KINDS if name in given]) != 1:
        raise place.refusal("A schedule has exactly one of cron, every, delay, at, solar.")
    return {**copy.deepcopy(dict(SCHEDULE_DEFAULTS)), **given}


_INSTANT_FIELDS = ("at", "starts_at", "ends_at")


def _read_instant(place: YamlValue, zone: str | None) -> str | None:
    """Return an instant in UTC; without an offset it needs the schedule's time zone."""
    if place.value is None and place.path[-1] != "at":
        return None
    word = place.text()
    try:
        naive = datetime.fromisoformat(word).tzinfo is None
        if naive and zone is None:
            raise place.refusal("The time has no offset: append Z or +01:00, or give the schedule a timezone.")
        return parse_instant(word, parse_timezone(zone) if zone else None)
    except ValueError:
        raise place.refusal("This is not a time: write it as 2030-01-31T09:00:00Z.") from None


def _read_dates(place: YamlValue) -> list[str]:
    found = set()
    for each in place.entries():
        try:
            found.add(date.fromisoformat(each.text()).isoformat())
        except ValueError:
            raise each.refusal("This is not a date: write it as 2030-01-31.") from None
    return sorted(found)


def _read_requirements(parts: Mapping[str, YamlValue]) -> dict[str, object]:
    given = _read_section(parts, "requirements", REQUIREMENTS_DEFAULTS, _REQUIREMENTS_READERS)
    capabilities = given["capabilities"]
    return {**given, "capabilities": sorted(set(capabilities)) if isinstance(capabilities, list) else []}


def _read_retry_policy(parts: Mapping[str, YamlValue]) -> dict[str, object]:
    given = _read_section(parts, "retry", RETRY_DEFAULTS, _RETRY_READERS, durations=("backoff", "max_backoff"))
    first, most = given["backoff_seconds"], given["max_backoff_seconds"]
    named = parts["retry"].parts() if "retry" in parts else {}
    if not {"max_backoff", "max_backoff_seconds"} & set(named) and isinstance(first, int | float):
        # Like the server: a first delay above the default maximum raises the maximum.
        given["max_backoff_seconds"] = max(most if isinstance(most, int | float) else 0, first)
    return given


def _read_section(
    parts: Mapping[str, YamlValue],
    key: str,
    defaults: Mapping[str, object],
    readers: Mapping[str, FieldReader],
    durations: tuple[str, ...] = (),
) -> dict[str, object]:
    filled = copy.deepcopy(dict(defaults))
    if key in parts:
        filled |= _read_fields(parts[key], parts[key].fields([*defaults, *durations]), readers)
    return filled


def _read_fields(
    place: YamlValue, parts: Mapping[str, YamlValue], readers: Mapping[str, FieldReader]
) -> dict[str, object]:
    """Read fields; every `…_seconds` field can also be written as a duration, such as `timeout: 5m`."""
    found: dict[str, object] = {}
    for key, part in parts.items():
        if key in ("requirements", "retry"):
            continue
        field_name = key if key in readers else f"{key}_seconds"
        if field_name in found:
            raise part.refusal(f"This sets {field_name} a second time.")
        found[field_name] = readers[key](part) if key in readers else _read_duration(part)
    return found


def _read_duration(place: YamlValue) -> int | None:
    if place.value is None:
        return None
    try:
        return parse_duration(str(place.value) if isinstance(place.value, int) else place.text())
    except UsageError as error:
        raise place.refusal(error.message) from None


def _list_entries(parts: Mapping[str, YamlValue], key: str) -> list[YamlValue]:
    return list(parts[key].entries()) if key in parts else []


def _read_texts(place: YamlValue) -> list[str]:
    return [each.text() for each in place.entries()]


def _read_text_map(place: YamlValue) -> dict[str, str]:
    return {key: part.text() for key, part in place.parts().items()}


def _read_int_map(place: YamlValue) -> dict[str, int]:
    return {key: part.whole() for key, part in place.parts().items()}


def _read_secret_grants(place: YamlValue) -> list[dict[str, str | None]]:
    grants = []
    for each in place.entries():
        parts = each.fields(("name", "env", "file"))
        if "name" not in parts or ("env" in parts) == ("file" in parts):
            raise each.refusal("A secret has a name, and either the env or the file that the program finds it in.")
        texts = {key: part.text() for key, part in parts.items()}
        grants.append({"name": texts["name"], "env": texts.get("env"), "file": texts.get("file")})
    return sorted(grants, key=lambda grant: (str(grant["name"]), grant["env"] or "", grant["file"] or ""))


def _read_expression(place: YamlValue) -> str:
    """Normalise the blanks between the words of an expression and the case of nicknames such as @daily."""
    words = " ".join(place.text().split())
    return words.lower() if words.startswith("@") else words


def _nullable(read: FieldReader) -> FieldReader:
    return lambda place: None if place.value is None else read(place)


def _read_sorted_codes(place: YamlValue) -> list[int]:
    return sorted({each.whole() for each in place.entries()})


def _read_sorted_texts(place: YamlValue) -> list[str]:
    return sorted(set(_read_texts(place)))


_JOB_READERS: Mapping[str, FieldReader] = {
    "args": _read_texts, "env": _read_text_map, "secrets": _read_secret_grants,
    "priority": YamlValue.whole, "queue": YamlValue.text,
    "team": _nullable(YamlValue.text),
    "timeout_seconds": YamlValue.number, "deadline_seconds": _nullable(YamlValue.number),
    "max_concurrency": _nullable(YamlValue.whole), "overlap": YamlValue.text,
    "delivery": YamlValue.text, "network": YamlValue.boolean,
}  # fmt: skip
_REQUIREMENTS_READERS: Mapping[str, FieldReader] = {
    "cpu": YamlValue.number, "memory_mb": YamlValue.whole, "disk_mb": YamlValue.whole, "capabilities": _read_texts,
    "resources": _read_int_map,
}  # fmt: skip
_RETRY_READERS: Mapping[str, FieldReader] = {
    "max_attempts": YamlValue.whole, "backoff_seconds": YamlValue.number, "backoff_factor": YamlValue.number,
    "max_backoff_seconds": YamlValue.number, "jitter": YamlValue.number, "on_exit_codes": _nullable(_read_sorted_codes),
    "not_on_exit_codes": _nullable(_read_sorted_codes), "on_reasons": _nullable(_read_sorted_texts),
}  # fmt: skip
_SCHEDULE_READERS: Mapping[str, FieldReader] = {
    "cron": _read_expression, "solar": _read_expression, "every_seconds": YamlValue.number,
    "delay_seconds": YamlValue.number,
    "timezone": YamlValue.text, "jitter_seconds": YamlValue.number, "catch_up": YamlValue.text,
    "catch_up_window_seconds": _nullable(YamlValue.number), "excluded_dates": _read_dates,
    "calendar": _nullable(YamlValue.text),
    "max_count": _nullable(YamlValue.whole),
}  # fmt: skip


def normalise_instant(word: str) -> str:
    """Format an instant like `parse_instant`, so that equal instants are equal texts."""
    return datetime.fromisoformat(word).astimezone(UTC).isoformat().replace("+00:00", "Z")
