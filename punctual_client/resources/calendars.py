"""Calendars: dates on which schedules do not fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, int_field, text_field, text_list_field
from punctual_client.resources.base import ApiCalls, path_segment


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
            id=text_field(data, "id"),
            name=text_field(data, "name"),
            dates=text_list_field(data, "dates"),
            used_by=int_field(data, "used_by"),
            raw=data,
        )


class CalendarCalls(ApiCalls):
    def calendars(self, *, limit: int = 50) -> list[Calendar]:
        return [Calendar.parse(item) for item in self._list("calendars", {}, limit)]

    def calendar(self, calendar_id: str) -> Calendar:
        return Calendar.parse(self._transport.get(f"calendars/{path_segment(calendar_id)}"))

    def create_calendar(self, name: str, dates: Sequence[str]) -> Calendar:
        return Calendar.parse(self._transport.send("POST", "calendars", {"name": name, "dates": list(dates)}))

    def edit_calendar(
        self, calendar_id: str, *, name: str | None = None, dates: Sequence[str] | None = None
    ) -> Calendar:
        changes: dict[str, object] = {} if name is None else {"name": name}
        if dates is not None:
            changes["dates"] = list(dates)
        return Calendar.parse(self._transport.send("PATCH", f"calendars/{path_segment(calendar_id)}", changes))

    def delete_calendar(self, calendar_id: str) -> None:
        self._transport.send("DELETE", f"calendars/{path_segment(calendar_id)}")
