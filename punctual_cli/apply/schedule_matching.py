"""Matching of a job's stored schedules to those of a file, so that unchanged ones keep their ids.

Schedules have no names: equal ones match first, then those of the same kind, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from punctual_cli.apply.manifests import SCHEDULE_DEFAULTS, SCHEDULE_KINDS, normalise_instant
from punctual_client.json_fields import JsonObject, text_field


@dataclass(frozen=True)
class ScheduleMatch:
    """A schedule of the file with its stored counterpart; `stored` is None for a new one."""

    wanted: Mapping[str, object]
    stored: JsonObject | None
    differs: bool

    @property
    def edit(self) -> dict[str, object]:
        """The schedule in an edit of the job."""
        if self.stored is None:
            return dict(self.wanted)
        return {"id": text_field(self.stored, "id"), **(self.wanted if self.differs else {})}

    @property
    def preview(self) -> dict[str, object] | None:
        """The schedule in a preview; None for an unchanged one that will not fire again."""
        if self.stored is None:
            return dict(self.wanted)
        if not self.differs and self.stored.get("next_instant") is None:
            return None
        same_kind = schedule_kind(self.wanted) == schedule_kind(self.stored)
        anchor = {"starts_at": self.stored["starts_at"]} if same_kind and self.stored.get("starts_at") else {}
        return {"id": text_field(self.stored, "id"), **anchor, **self.wanted}


@dataclass(frozen=True)
class MatchResult:
    matches: tuple[ScheduleMatch, ...]
    removed: tuple[JsonObject, ...]

    @property
    def differs(self) -> bool:
        return bool(self.removed) or any(match.differs for match in self.matches)


def match_schedules(
    wanted: Sequence[Mapping[str, object]], stored: Sequence[JsonObject], calendar_names: Mapping[str, str]
) -> MatchResult:
    """Match schedules; `calendar_names` maps ids to names, since files use names and the server ids."""
    unmatched = list(stored)
    found: list[JsonObject | None] = [None] * len(wanted)
    for index, each in enumerate(wanted):
        same = next((row for row in unmatched if _is_same_schedule(each, row, calendar_names)), None)
        if same is not None:
            unmatched.remove(same)
            found[index] = same
    equal = [row is not None for row in found]
    for index, each in enumerate(wanted):
        if found[index] is None:
            alike = next((row for row in unmatched if schedule_kind(row) == schedule_kind(each)), None)
            if alike is not None:
                unmatched.remove(alike)
                found[index] = alike
    matches = tuple(
        ScheduleMatch(each, row, differs=not same) for each, row, same in zip(wanted, found, equal, strict=True)
    )
    return MatchResult(matches, tuple(unmatched))


def schedule_kind(schedule: JsonObject) -> str:
    return next((name for name in SCHEDULE_KINDS if schedule.get(name) is not None), "")


def describe_schedule(schedule: JsonObject, calendar_names: Mapping[str, str]) -> str:
    """Describe a schedule by its kind and the fields that differ from the defaults."""
    normal = _normalise(schedule, calendar_names)
    kind = schedule_kind(schedule)
    shown = [
        f"{kind.removesuffix('_seconds')} {_format_value(normal[kind])}{' s' if kind.endswith('_seconds') else ''}"
    ]
    for name, default in SCHEDULE_DEFAULTS.items():
        if normal[name] != default:
            shown.append(f"{name} {_format_value(normal[name])}")
    return ", ".join(shown)


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_same_schedule(wanted: Mapping[str, object], row: JsonObject, calendar_names: Mapping[str, str]) -> bool:
    starts = wanted.get("starts_at")
    if starts is not None and normalise_instant(str(starts)) != normalise_instant(text_field(row, "starts_at")):
        return False
    return _normalise(wanted, calendar_names) == _normalise(row, calendar_names)


def _normalise(schedule: JsonObject, calendar_names: Mapping[str, str]) -> dict[str, object]:
    kind = schedule_kind(schedule)
    normal = {name: schedule.get(name, default) for name, default in SCHEDULE_DEFAULTS.items()}
    normal[kind] = schedule[kind] if kind != "at" else normalise_instant(str(schedule[kind]))
    if normal["ends_at"] is not None:
        normal["ends_at"] = normalise_instant(str(normal["ends_at"]))
    normal["calendar"] = calendar_names.get(str(normal["calendar"]), normal["calendar"])
    dates = normal["excluded_dates"]
    normal["excluded_dates"] = sorted(dates) if isinstance(dates, list) else []
    return normal
