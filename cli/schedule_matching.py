"""Which schedule of a job is which one of a file: those that say the same are left alone, so that they keep their ids.

Schedules have no names. Equal ones belong together; of the rest, those of one kind, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.answers import JsonObject, text
from cli.manifests import KINDS, SCHEDULE_DEFAULTS, normal_instant


@dataclass(frozen=True)
class Match:
    """One of the file's; `stored` is None for a new one, and `differs` says whether it has to be sent."""

    wanted: Mapping[str, object]
    stored: JsonObject | None
    differs: bool

    @property
    def edit(self) -> dict[str, object]:
        """As an edit of the job has it."""
        if self.stored is None:
            return dict(self.wanted)
        return {"id": text(self.stored, "id"), **(self.wanted if self.differs else {})}

    @property
    def preview(self) -> dict[str, object] | None:
        """As it would be previewed; None for one that is over, and stays so."""
        if self.stored is None:
            return dict(self.wanted)
        if not self.differs and self.stored.get("next_instant") is None:
            return None
        same_kind = kind_of(self.wanted) == kind_of(self.stored)
        anchor = {"starts_at": self.stored["starts_at"]} if same_kind and self.stored.get("starts_at") else {}
        return {"id": text(self.stored, "id"), **anchor, **self.wanted}


@dataclass(frozen=True)
class Matching:
    matches: tuple[Match, ...]
    removed: tuple[JsonObject, ...]

    @property
    def differs(self) -> bool:
        return bool(self.removed) or any(match.differs for match in self.matches)


def match_schedules(
    wanted: Sequence[Mapping[str, object]], stored: Sequence[JsonObject], calendar_names: Mapping[str, str]
) -> Matching:
    """`calendar_names` by id: a file calls calendars by their names, and the server's answer has ids."""
    left = list(stored)
    found: list[JsonObject | None] = [None] * len(wanted)
    for index, each in enumerate(wanted):
        same = next((row for row in left if _says_the_same(each, row, calendar_names)), None)
        if same is not None:
            left.remove(same)
            found[index] = same
    equal = [row is not None for row in found]
    for index, each in enumerate(wanted):
        if found[index] is None:
            alike = next((row for row in left if kind_of(row) == kind_of(each)), None)
            if alike is not None:
                left.remove(alike)
                found[index] = alike
    matches = tuple(Match(each, row, differs=not same) for each, row, same in zip(wanted, found, equal, strict=True))
    return Matching(matches, tuple(left))


def kind_of(schedule: JsonObject) -> str:
    return next((name for name in KINDS if schedule.get(name) is not None), "")


def described(schedule: JsonObject, calendar_names: Mapping[str, str]) -> str:
    """In a few words: what it is, and whatever is not as usual."""
    normal = _normal(schedule, calendar_names)
    kind = kind_of(schedule)
    shown = [f"{kind.removesuffix('_seconds')} {_shown(normal[kind])}{' s' if kind.endswith('_seconds') else ''}"]
    for name, default in SCHEDULE_DEFAULTS.items():
        if normal[name] != default:
            shown.append(f"{name} {_shown(normal[name])}")
    return ", ".join(shown)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _says_the_same(wanted: Mapping[str, object], row: JsonObject, calendar_names: Mapping[str, str]) -> bool:
    starts = wanted.get("starts_at")
    if starts is not None and normal_instant(str(starts)) != normal_instant(text(row, "starts_at")):
        return False
    return _normal(wanted, calendar_names) == _normal(row, calendar_names)


def _normal(schedule: JsonObject, calendar_names: Mapping[str, str]) -> dict[str, object]:
    kind = kind_of(schedule)
    normal = {name: schedule.get(name, default) for name, default in SCHEDULE_DEFAULTS.items()}
    normal[kind] = schedule[kind] if kind != "at" else normal_instant(str(schedule[kind]))
    if normal["ends_at"] is not None:
        normal["ends_at"] = normal_instant(str(normal["ends_at"]))
    normal["calendar"] = calendar_names.get(str(normal["calendar"]), normal["calendar"])
    dates = normal["excluded_dates"]
    normal["excluded_dates"] = sorted(dates) if isinstance(dates, list) else []
    return normal
