"""What the server answers, as frozen values.

Fields that a command needs are checked here, once; `raw` keeps the whole answer for `-o json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cli.answers import JsonObject, as_objects, number, optional_number, optional_text, text, texts

TERMINAL = frozenset({"succeeded", "failed", "timed_out", "cancelled", "missed", "skipped"})


def _progress(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    percent, message = value.get("percent"), value.get("message")
    known = f"{percent:g} %" if isinstance(percent, int | float) else ""
    return " ".join(part for part in (known, message) if isinstance(part, str) and part)


@dataclass(frozen=True)
class Job:
    id: str
    name: str
    status: str
    next_instants: tuple[str, ...]
    warnings: tuple[str, ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Job:
        schedules = as_objects(data.get("schedules") or [])
        instants = [instant for each in schedules if (instant := optional_text(each, "next_instant"))]
        return cls(
            id=text(data, "id"),
            name=text(data, "name"),
            status=text(data, "status"),
            next_instants=tuple(sorted(instants)),
            warnings=texts(data, "warnings"),
            raw=data,
        )

    @property
    def name_and_owner(self) -> str:
        """For who acts upon it, and may act upon those of others."""
        owner = optional_text(self.raw, "owner")
        return f"{self.name} of {owner}" if owner else self.name

    @property
    def schedules_shown(self) -> str:
        schedules = as_objects(self.raw.get("schedules") or [])
        return "; ".join(optional_text(schedule, "in_words") or "in quarantine" for schedule in schedules)


@dataclass(frozen=True)
class Calendar:
    id: str
    name: str
    dates: tuple[str, ...]
    used_by: int
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Calendar:
        return cls(
            id=text(data, "id"),
            name=text(data, "name"),
            dates=texts(data, "dates"),
            used_by=number(data, "used_by"),
            raw=data,
        )


@dataclass(frozen=True)
class Secret:
    """All that anybody is told of one; its value is not."""

    id: str
    name: str
    owner: str
    version: int
    updated_at: str
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Secret:
        return cls(
            id=text(data, "id"),
            name=text(data, "name"),
            owner=text(data, "owner"),
            version=number(data, "version"),
            updated_at=text(data, "updated_at"),
            raw=data,
        )


@dataclass(frozen=True)
class Execution:
    id: str
    job_id: str
    job_name: str
    status: str
    attempt: int
    exit_code: int | None
    signal: int | None
    reason: str | None
    scheduled_for: str | None
    started_at: str | None
    ended_at: str | None
    progress: str  # how far it says it is; empty: it says nothing
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Execution:
        return cls(
            id=text(data, "id"),
            job_id=text(data, "job_id"),
            job_name=optional_text(data, "job_name") or "",
            status=text(data, "status"),
            attempt=number(data, "attempt"),
            exit_code=optional_number(data, "exit_code"),
            signal=optional_number(data, "signal"),
            reason=optional_text(data, "reason"),
            scheduled_for=optional_text(data, "scheduled_for"),
            started_at=optional_text(data, "started_at"),
            ended_at=optional_text(data, "ended_at"),
            progress=_progress(data.get("progress")),
            raw=data,
        )

    @property
    def has_ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def exit_shown(self) -> str:
        if self.exit_code is not None:
            return str(self.exit_code)
        return "" if self.signal is None else f"signal {self.signal}"


@dataclass(frozen=True)
class LogChunk:
    sequence: int
    stream: str
    text: str

    @classmethod
    def parse(cls, data: JsonObject) -> LogChunk:
        return cls(sequence=number(data, "sequence"), stream=text(data, "stream"), text=text(data, "text"))


@dataclass(frozen=True)
class LogPage:
    chunks: list[LogChunk]
    ended: bool  # nothing more is written: once a page is empty, all has been read

    @classmethod
    def parse(cls, data: JsonObject) -> LogPage:
        chunks = [LogChunk.parse(item) for item in as_objects(data.get("results"))]
        return cls(chunks, ended=data.get("ended") is True)


@dataclass(frozen=True)
class FoundLine:
    """A line of a log that matches a search, and where the matches are in it."""

    execution_id: str
    job_name: str
    attempt: int
    stream: str
    at: str
    line: str
    matches: tuple[tuple[int, int], ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> FoundLine:
        places = data.get("matches")
        pairs = [place for place in places if isinstance(place, list)] if isinstance(places, list) else []
        return cls(
            execution_id=text(data, "execution_id"),
            job_name=text(data, "job_name"),
            attempt=number(data, "attempt"),
            stream=text(data, "stream"),
            at=text(data, "at"),
            line=text(data, "line"),
            matches=tuple((int(str(pair[0])), int(str(pair[1]))) for pair in pairs if len(pair) == 2),
            raw=data,
        )


@dataclass(frozen=True)
class FoundLines:
    """`complete`: nothing is left, or as many were found as were wanted."""

    lines: tuple[FoundLine, ...]
    complete: bool


@dataclass(frozen=True)
class Instant:
    at: str
    local: str
    note: str | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Instant:
        return cls(
            at=text(data, "at"),
            local=text(data, "local"),
            note=optional_text(data, "note"),
            raw=data,
        )


@dataclass(frozen=True)
class Worker:
    id: str
    name: str
    status: str
    host: str
    pool: str
    slots: int | None
    runs: int | None  # None: it has not said yet
    load: float | None
    used_at: str | None
    refusal: str  # why it takes no work
    capabilities: tuple[str, ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Worker:
        capabilities = data.get("capabilities") or []
        names = capabilities if isinstance(capabilities, list | dict) else []
        told = data.get("usage")
        usage: JsonObject = told if isinstance(told, dict) else {}
        load = usage.get("load")
        return cls(
            id=text(data, "id"),
            name=optional_text(data, "name") or "",
            status=text(data, "status"),
            host=optional_text(data, "host") or "",
            pool=optional_text(data, "pool") or "",
            slots=optional_number(data, "slots"),
            runs=optional_number(usage, "runs"),
            load=float(load) if isinstance(load, int | float) else None,
            used_at=optional_text(usage, "at"),
            refusal=optional_text(data, "refusal") or "",
            capabilities=tuple(sorted(str(name) for name in names)),
            raw=data,
        )

    def able_to(self) -> str:
        """What it can run, each with its version where the worker told one."""
        details = self.raw.get("details")
        runtimes = details.get("runtimes") if isinstance(details, dict) else None
        versions = runtimes if isinstance(runtimes, dict) else {}
        return ", ".join(f"{name} {versions.get(name, '')}".rstrip() for name in self.capabilities)


@dataclass(frozen=True)
class Team:
    id: str
    name: str
    members: tuple[str, ...]
    raw: JsonObject = field(repr=False, compare=False)
    tag: str = field(default="", repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject, tag: str = "") -> Team:
        return cls(id=text(data, "id"), name=text(data, "name"), members=texts(data, "members"), raw=data, tag=tag)


@dataclass(frozen=True)
class Queue:
    id: str
    name: str
    pool: str
    priority: int
    max_concurrency: int | None
    paused: bool
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Queue:
        return cls(
            id=text(data, "id"),
            name=text(data, "name"),
            pool=text(data, "pool"),
            priority=number(data, "priority"),
            max_concurrency=optional_number(data, "max_concurrency"),
            paused=data.get("paused") is True,
            raw=data,
        )


@dataclass(frozen=True)
class Backfill:
    """Instants of the past that are being caught up, `done` of `expected`."""

    id: str
    job_id: str
    status: str
    first: str
    last: str
    done: int
    expected: int | None
    by: str
    created_at: str
    ended_at: str | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Backfill:
        return cls(
            id=text(data, "id"),
            job_id=text(data, "job_id"),
            status=text(data, "status"),
            first=text(data, "from"),
            last=text(data, "to"),
            done=number(data, "created_count"),
            expected=optional_number(data, "expected_count"),
            by=optional_text(data, "requested_by") or "",
            created_at=text(data, "created_at"),
            ended_at=optional_text(data, "ended_at"),
            raw=data,
        )
