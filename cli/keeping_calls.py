"""The verbs about what jobs share: calendars and secrets."""

from __future__ import annotations

from collections.abc import Sequence

from cli.calls import Calls, given, segment
from cli.records import Calendar, Secret


class KeepingCalls(Calls):
    def calendars(self, *, limit: int = 50) -> list[Calendar]:
        return [Calendar.parse(item) for item in self._listing("calendars", {}, limit)]

    def calendar(self, calendar_id: str) -> Calendar:
        return Calendar.parse(self._transport.get(f"calendars/{segment(calendar_id)}"))

    def create_calendar(self, name: str, dates: Sequence[str]) -> Calendar:
        return Calendar.parse(self._transport.send("POST", "calendars", {"name": name, "dates": list(dates)}))

    def edit_calendar(
        self, calendar_id: str, *, name: str | None = None, dates: Sequence[str] | None = None
    ) -> Calendar:
        changes: dict[str, object] = {} if name is None else {"name": name}
        if dates is not None:
            changes["dates"] = list(dates)
        return Calendar.parse(self._transport.send("PATCH", f"calendars/{segment(calendar_id)}", changes))

    def delete_calendar(self, calendar_id: str) -> None:
        self._transport.send("DELETE", f"calendars/{segment(calendar_id)}")

    def secrets(self, *, name: str | None = None, limit: int = 50) -> list[Secret]:
        return [Secret.parse(item) for item in self._listing("secrets", given(name=name), limit)]

    def secret(self, secret_id: str) -> Secret:
        return Secret.parse(self._transport.get(f"secrets/{segment(secret_id)}"))

    def create_secret(self, name: str, value: str) -> Secret:
        return Secret.parse(self._transport.send("POST", "secrets", {"name": name, "value": value}))

    def rotate_secret(self, secret_id: str, value: str) -> Secret:
        return Secret.parse(self._transport.send("PUT", f"secrets/{segment(secret_id)}", {"value": value}))

    def delete_secret(self, secret_id: str) -> None:
        self._transport.send("DELETE", f"secrets/{segment(secret_id)}")
