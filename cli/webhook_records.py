"""What the server answers of webhooks and their deliveries, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from cli.answers import JsonObject, number, optional_number, optional_text, text


@dataclass(frozen=True)
class Webhook:
    id: str
    name: str
    owner: str
    enabled: bool
    secret: str = field(repr=False)  # empty: told only when it is made
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Webhook:
        return cls(
            id=text(data, "id"),
            name=text(data, "name"),
            owner=text(data, "owner"),
            enabled=data.get("enabled") is True,
            secret=optional_text(data, "secret") or "",
            raw=data,
        )

    def standing(self) -> str:
        """In a word, or in the server's when it was disabled by itself."""
        if self.enabled:
            return "failing" if self.raw.get("failing_since") else "enabled"
        return optional_text(self.raw, "disabled_reason") or "disabled"

    def events(self) -> str:
        named = self.raw.get("events")
        return ",".join(map(str, named)) if isinstance(named, list) else ""


@dataclass(frozen=True)
class WebhookDelivery:
    id: str
    state: str
    attempts: int
    status_code: int | None
    error: str
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> WebhookDelivery:
        return cls(
            id=text(data, "id"),
            state=text(data, "state"),
            attempts=number(data, "attempts"),
            status_code=optional_number(data, "status_code"),
            error=optional_text(data, "error") or "",
            raw=data,
        )
