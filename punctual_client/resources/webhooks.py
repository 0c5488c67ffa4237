"""Webhooks: addresses that the server notifies of finished executions, and the deliveries to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, int_field, optional_int_field, optional_text_field, text_field
from punctual_client.resources.base import ApiCalls, filter_fields, omit_none, path_segment


@dataclass(frozen=True)
class Webhook:
    id: str
    name: str
    owner: str
    enabled: bool
    secret: str = field(repr=False)  # empty unless the webhook was just created or its secret rotated
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Webhook:
        return cls(
            id=text_field(data, "id"),
            name=text_field(data, "name"),
            owner=text_field(data, "owner"),
            enabled=data.get("enabled") is True,
            secret=optional_text_field(data, "secret") or "",
            raw=data,
        )


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
            id=text_field(data, "id"),
            state=text_field(data, "state"),
            attempts=int_field(data, "attempts"),
            status_code=optional_int_field(data, "status_code"),
            error=optional_text_field(data, "error") or "",
            raw=data,
        )


class WebhookCalls(ApiCalls):
    def webhooks(self, *, name: str | None = None, limit: int = 50) -> list[Webhook]:
        return [Webhook.parse(item) for item in self._list("webhooks", filter_fields(name=name), limit)]

    def webhook(self, webhook_id: str) -> Webhook:
        return Webhook.parse(self._transport.get(f"webhooks/{path_segment(webhook_id)}"))

    def create_webhook(
        self, name: str, url: str, *, events: Sequence[str] | None = None, job_id: str | None = None
    ) -> Webhook:
        """Create a webhook; only this answer contains its secret."""
        body: dict[str, object] = {"name": name, "url": url, **omit_none(job=job_id)}
        if events is not None:
            body["events"] = list(events)
        return Webhook.parse(self._transport.send("POST", "webhooks", body))

    def edit_webhook(self, webhook_id: str, changes: JsonObject) -> Webhook:
        return Webhook.parse(self._transport.send("PATCH", f"webhooks/{path_segment(webhook_id)}", changes))

    def rotate_webhook(self, webhook_id: str, *, force: bool = False) -> Webhook:
        """Give a webhook a new secret; `force` also within a day, when the second-last secret stops working."""
        body: JsonObject = {"force": True} if force else {}
        return Webhook.parse(self._transport.send("POST", f"webhooks/{path_segment(webhook_id)}/rotate", body))

    def delete_webhook(self, webhook_id: str) -> None:
        self._transport.send("DELETE", f"webhooks/{path_segment(webhook_id)}")

    def ping_webhook(self, webhook_id: str) -> WebhookDelivery:
        return WebhookDelivery.parse(self._transport.send("POST", f"webhooks/{path_segment(webhook_id)}/ping"))

    def deliveries(self, webhook_id: str, *, state: str | None = None, limit: int = 50) -> list[WebhookDelivery]:
        path = f"webhooks/{path_segment(webhook_id)}/deliveries"
        return [WebhookDelivery.parse(item) for item in self._list(path, filter_fields(state=state), limit)]

    def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        path = f"webhooks/{path_segment(webhook_id)}/deliveries/{path_segment(delivery_id)}/redeliver"
        return WebhookDelivery.parse(self._transport.send("POST", path))
