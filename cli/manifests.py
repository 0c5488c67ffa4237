"""What a file for `apply` says: jobs and calendars as the API has them, with what only this machine knows beside.

A job is described whole: what the file leaves out has the default, so that a line that is deleted is taken back. Types
are checked here, with the line; ranges and rules are the server's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from cli.errors import UsageMistakeError
from cli.programs import Runtime, guess_runtime
from cli.values import CONDITIONS, After, parse_duration, parse_instant, parse_zone
from cli.yaml_reading import Place, read_documents

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
LONGEST_NAME = 200
KINDS = ("cron", "every_seconds", "delay_seconds", "at", "solar")

_PROGRAM = ("name", "runtime", "script", "script_file", "stdin", "stdin_file", "inputs", "schedules", "dependencies")

Read = Callable[[Place], object]


@dataclass(frozen=True)
class Source:
    """Bytes that are written in the file itself, or lie in one beside it."""

    text: str | None = None
    file: Path | None = None


@dataclass(frozen=True)
class JobManifest:
    name: str
    place: Place = field(repr=False, compare=False)
    runtime: Runtime
    program: Source
    stdin: Source | None
    inputs: tuple[tuple[str, Path], ...]  # where the program finds each, and what it is here
    schedules: tuple[Mapping[str, object], ...]  # with a starts_at only where the file says one
    dependencies: tuple[After, ...]  # by name, or by id
    fields: Mapping[str, object]  # everything else, in the shape of the API, with its defaults

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
    """`folder` is what the paths in it are relative to."""
    jobs: dict[str, JobManifest] = {}
    calendars: dict[str, CalendarManifest] = {}
    for document in read_documents(content, file):
        parts = Place(document, document.value).fields(("calendars", "jobs"))
        for place in parts["calendars"].entries() if "calendars" in parts else ():
            calendar = _calendar(place)
            if calendar.name in calendars:
                raise place.refusal(f"A second calendar is called {calendar.name!r}.")
            calendars[calendar.name] = calendar
        for place in parts["jobs"].entries() if "jobs" in parts else ():
            job = _job(place, folder)
            if job.name in jobs:
                raise place.refusal(f"A second job is called {job.name!r}: in a file names tell jobs apart.")
            jobs[job.name] = job
    if not jobs and not calendars:
        raise UsageMistakeError(f"{file} has neither jobs: nor calendars: in it.")
    return Manifest(tuple(jobs.values()), tuple(calendars.values()))


def _calendar(place: Place) -> CalendarManifest:
    parts = place.fields(("name", "dates"))
    return CalendarManifest(_name(place, parts), tuple(_dates(parts["dates"]) if "dates" in parts else ()), place.where)


def _job(place: Place, folder: Path) -> JobManifest:
    known = [*_PROGRAM, *JOB_DEFAULTS, "requirements", "retry", "timeout", "deadline"]
    parts = place.fields(known)
    name = _name(place, parts)
    program = _source(place, parts, "script", folder)
    if program is None:
        raise place.refusal("The job has no program: give it a script or a script_file.")
    return JobManifest(
        name=name,
        place=place,
        runtime=_runtime(place, parts, program),
        program=program,
        stdin=_source(place, parts, "stdin", folder),
        inputs=tuple(_input(each, folder) for each in _list(parts, "inputs")),
        schedules=tuple(_schedule(each) for each in _list(parts, "schedules")),
        dependencies=tuple(_dependency(each) for each in _list(parts, "dependencies")),
        fields={
            **copy.deepcopy(dict(JOB_DEFAULTS)),
            **_given(place, {key: part for key, part in parts.items() if key not in _PROGRAM}, _JOB),
            "requirements": _requirements(parts),
            "retry": _retry(parts),
        },
    )


def _name(place: Place, parts: Mapping[str, Place]) -> str:
    if "name" not in parts:
        raise place.refusal("A name is missing.")
    name = parts["name"].text()
    if not name or name != name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise parts["name"].refusal(
            f"A name is a line of at most {LONGEST_NAME} characters, without blanks at its ends."
        )
    return name


def _source(place: Place, parts: Mapping[str, Place], key: str, folder: Path) -> Source | None:
    here, beside = parts.get(key), parts.get(f"{key}_file")
    if here is not None and beside is not None:
        raise beside.refusal(f"Give either {key} or {key}_file.")
    if here is not None and here.value is not None:
        if not here.text():
            raise here.refusal("This is empty.")
        return Source(text=here.text())
    return None if beside is None else Source(file=_file(beside, folder))


def _file(place: Place, folder: Path) -> Path:
    path = folder / place.text()
    try:
        if path.is_file():
            return path
    except OSError as error:
        raise place.refusal(f"This cannot name a file: {error.strerror or error}.") from None
    raise place.refusal(f"There is no file {path}.")


def _runtime(place: Place, parts: Mapping[str, Place], program: Source) -> Runtime:
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
    except UsageMistakeError:
        raise place.refusal("What runs the program cannot be guessed: say it with runtime.") from None


def _input(place: Place, folder: Path) -> tuple[str, Path]:
    parts = place.fields(("path", "file"))
    for key in ("path", "file"):
        if key not in parts:
            raise place.refusal(f"An input has a path, where the program finds it, and a file: {key} is missing.")
    return parts["path"].text(), _file(parts["file"], folder)


def _dependency(place: Place) -> After:
    if isinstance(place.value, str):
        return After(place.value, "success")
    parts = place.fields(("job", "condition"))
    if "job" not in parts:
        raise place.refusal("The name of a job is missing.")
    condition = parts["condition"].text() if "condition" in parts else "success"
    if condition not in CONDITIONS:
        raise parts["condition"].refusal(f"The condition must be one of {', '.join(CONDITIONS)}.")
    return After(parts["job"].text(), condition)


def _schedule(place: Place) -> dict[str, object]:
    durations = [name.removesuffix("_seconds") for name in (*KINDS, *SCHEDULE_DEFAULTS) if name.endswith("_seconds")]
    parts = place.fields([*KINDS, *durations, "starts_at", *SCHEDULE_DEFAULTS])
    zone = parts["timezone"].text() if "timezone" in parts else None
    given = _given(place, {key: part for key, part in parts.items() if key not in _INSTANTS}, _SCHEDULE)
    given |= {key: _instant(parts[key], zone) for key in _INSTANTS if key in parts}
    if len([name for name in KINDS if name in given]) != 1:
        raise place.refusal("A schedule has exactly one of cron, every, delay, at, solar.")
    return {**copy.deepcopy(dict(SCHEDULE_DEFAULTS)), **given}


_INSTANTS = ("at", "starts_at", "ends_at")


def _instant(place: Place, zone: str | None) -> str | None:
    """In UTC; without an offset it is in the schedule's own zone, and without that it would be anybody's guess."""
    if place.value is None and place.path[-1] != "at":
        return None
    word = place.text()
    try:
        naive = datetime.fromisoformat(word).tzinfo is None
        if naive and zone is None:
            raise place.refusal("The time has no offset: append Z or +01:00, or give the schedule a timezone.")
        return parse_instant(word, parse_zone(zone) if zone else None)
    except ValueError:
        raise place.refusal("This is not a time: write it as 2030-01-31T09:00:00Z.") from None


def _dates(place: Place) -> list[str]:
    found = set()
    for each in place.entries():
        try:
            found.add(date.fromisoformat(each.text()).isoformat())
        except ValueError:
            raise each.refusal("This is not a date: write it as 2030-01-31.") from None
    return sorted(found)


def _requirements(parts: Mapping[str, Place]) -> dict[str, object]:
    given = _part(parts, "requirements", REQUIREMENTS_DEFAULTS, _REQUIREMENTS)
    capabilities = given["capabilities"]
    return {**given, "capabilities": sorted(set(capabilities)) if isinstance(capabilities, list) else []}


def _retry(parts: Mapping[str, Place]) -> dict[str, object]:
    given = _part(parts, "retry", RETRY_DEFAULTS, _RETRY, durations=("backoff", "max_backoff"))
    first, most = given["backoff_seconds"], given["max_backoff_seconds"]
    named = parts["retry"].parts() if "retry" in parts else {}
    if not {"max_backoff", "max_backoff_seconds"} & set(named) and isinstance(first, int | float):
        # As the server has it: a first delay above the default cap raises the cap.
        given["max_backoff_seconds"] = max(most if isinstance(most, int | float) else 0, first)
    return given


def _part(
    parts: Mapping[str, Place],
    key: str,
    defaults: Mapping[str, object],
    reads: Mapping[str, Read],
    durations: tuple[str, ...] = (),
) -> dict[str, object]:
    filled = copy.deepcopy(dict(defaults))
    if key in parts:
        filled |= _given(parts[key], parts[key].fields([*defaults, *durations]), reads)
    return filled


def _given(place: Place, parts: Mapping[str, Place], reads: Mapping[str, Read]) -> dict[str, object]:
    """`timeout: 5m` is `timeout_seconds: 300`, and so with whatever else is counted in seconds."""
    found: dict[str, object] = {}
    for key, part in parts.items():
        if key in ("requirements", "retry"):
            continue
        spelt = key if key in reads else f"{key}_seconds"
        if spelt in found:
            raise part.refusal(f"This says {spelt} a second time.")
        found[spelt] = reads[key](part) if key in reads else _duration(part)
    return found


def _duration(place: Place) -> int | None:
    if place.value is None:
        return None
    try:
        return parse_duration(str(place.value) if isinstance(place.value, int) else place.text())
    except UsageMistakeError as error:
        raise place.refusal(error.sentence) from None


def _list(parts: Mapping[str, Place], key: str) -> list[Place]:
    return list(parts[key].entries()) if key in parts else []


def _texts(place: Place) -> list[str]:
    return [each.text() for each in place.entries()]


def _text_by_name(place: Place) -> dict[str, str]:
    return {key: part.text() for key, part in place.parts().items()}


def _whole_by_name(place: Place) -> dict[str, int]:
    return {key: part.whole() for key, part in place.parts().items()}


def _secrets(place: Place) -> list[dict[str, str | None]]:
    grants = []
    for each in place.entries():
        parts = each.fields(("name", "env", "file"))
        if "name" not in parts or ("env" in parts) == ("file" in parts):
            raise each.refusal("A secret has a name, and either the env or the file that the program finds it in.")
        texts = {key: part.text() for key, part in parts.items()}
        grants.append({"name": texts["name"], "env": texts.get("env"), "file": texts.get("file")})
    return sorted(grants, key=lambda grant: (str(grant["name"]), grant["env"] or "", grant["file"] or ""))


def _words(place: Place) -> str:
    """Blanks between the words of an expression mean nothing, and @Daily is @daily."""
    words = " ".join(place.text().split())
    return words.lower() if words.startswith("@") else words


def _or_none(read: Read) -> Read:
    return lambda place: None if place.value is None else read(place)


def _sorted_codes(place: Place) -> list[int]:
    return sorted({each.whole() for each in place.entries()})


def _sorted_texts(place: Place) -> list[str]:
    return sorted(set(_texts(place)))


_JOB: Mapping[str, Read] = {
    "args": _texts, "env": _text_by_name, "secrets": _secrets, "priority": Place.whole, "queue": Place.text,
    "team": _or_none(Place.text),
    "timeout_seconds": Place.number, "deadline_seconds": _or_none(Place.number),
    "max_concurrency": _or_none(Place.whole), "overlap": Place.text, "delivery": Place.text, "network": Place.truth,
}  # fmt: skip
_REQUIREMENTS: Mapping[str, Read] = {
    "cpu": Place.number, "memory_mb": Place.whole, "disk_mb": Place.whole, "capabilities": _texts,
    "resources": _whole_by_name,
}  # fmt: skip
_RETRY: Mapping[str, Read] = {
    "max_attempts": Place.whole, "backoff_seconds": Place.number, "backoff_factor": Place.number,
    "max_backoff_seconds": Place.number, "jitter": Place.number, "on_exit_codes": _or_none(_sorted_codes),
    "not_on_exit_codes": _or_none(_sorted_codes), "on_reasons": _or_none(_sorted_texts),
}  # fmt: skip
_SCHEDULE: Mapping[str, Read] = {
    "cron": _words, "solar": _words, "every_seconds": Place.number, "delay_seconds": Place.number,
    "timezone": Place.text, "jitter_seconds": Place.number, "catch_up": Place.text,
    "catch_up_window_seconds": _or_none(Place.number), "excluded_dates": _dates, "calendar": _or_none(Place.text),
    "max_count": _or_none(Place.whole),
}  # fmt: skip


def normal_instant(word: str) -> str:
    """As `parse_instant` writes it, so that equal moments are equal words."""
    return datetime.fromisoformat(word).astimezone(UTC).isoformat().replace("+00:00", "Z")
