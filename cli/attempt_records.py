"""What the server answers of the attempts at an execution, and of what was not ordinary about it, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from cli.answers import JsonObject, number, optional_number, optional_text, text


@dataclass(frozen=True)
class Attempt:
    number: int
    worker_id: str
    placed_at: str | None
    started_at: str | None
    ended_at: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    problems: tuple[str, ...]  # why it failed, or which of its output files were left out
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Attempt:
        return cls(
            number=number(data, "number"),
            worker_id=optional_text(data, "worker_id") or "",
            placed_at=optional_text(data, "placed_at"),
            started_at=optional_text(data, "started_at"),
            ended_at=optional_text(data, "ended_at"),
            reason=optional_text(data, "reason"),
            exit_code=optional_number(data, "exit_code"),
            signal=optional_number(data, "signal"),
            problems=tuple(line for line in (optional_text(data, "error") or "").split("\n") if line),
            raw=data,
        )


@dataclass(frozen=True)
class Event:
    """`about`: what it says beside its name, such as by whom."""

    name: str
    at: str
    about: tuple[tuple[str, str], ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Event:
        detail = data.get("detail")
        told = detail if isinstance(detail, dict) else {}
        about = tuple((str(key), str(value)) for key, value in told.items() if value not in (None, ""))
        return cls(name=text(data, "name"), at=text(data, "created_at"), about=about, raw=data)
