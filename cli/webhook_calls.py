"""The verbs about webhooks: who is told when executions end."""

from __future__ import annotations

from collections.abc import Sequence

from cli.answers import JsonObject
from cli.calls import Calls, given, segment
from cli.webhook_records import Webhook, WebhookDelivery


class WebhookCalls(Calls):
    def webhooks(self, *, name: str | None = None, limit: int = 50) -> list[Webhook]:
        return [Webhook.parse(item) for item in self._listing("webhooks", given(name=name), limit)]

    def webhook(self, webhook_id: str) -> Webhook:
        return Webhook.parse(self._transport.get(f"webhooks/{segment(webhook_id)}"))

    def create_webhook(
        self, name: str, url: str, *, events: Sequence[str] | None = None, job_id: str | None = None
    ) -> Webhook:
        """With its secret, which no other answer has."""
        body: dict[str, object] = {"name": name, "url": url, **given(job=job_id)}
        if events is not None:
            body["events"] = list(events)
        return Webhook.parse(self._transport.send("POST", "webhooks", body))

    def edit_webhook(self, webhook_id: str, changes: JsonObject) -> Webhook:
        return Webhook.parse(self._transport.send("PATCH", f"webhooks/{segment(webhook_id)}", changes))

    def rotate_webhook(self, webhook_id: str, *, force: bool = False) -> Webhook:
        """`force`: even if it was rotated within a day; the secret before that signs no more."""
        body: JsonObject = {"force": True} if force else {}
        return Webhook.parse(self._transport.send("POST", f"webhooks/{segment(webhook_id)}/rotate", body))

    def delete_webhook(self, webhook_id: str) -> None:
        self._transport.send("DELETE", f"webhooks/{segment(webhook_id)}")

    def ping_webhook(self, webhook_id: str) -> WebhookDelivery:
        return WebhookDelivery.parse(self._transport.send("POST", f"webhooks/{segment(webhook_id)}/ping"))

    def deliveries(self, webhook_id: str, *, state: str | None = None, limit: int = 50) -> list[WebhookDelivery]:
        path = f"webhooks/{segment(webhook_id)}/deliveries"
        return [WebhookDelivery.parse(item) for item in self._listing(path, given(state=state), limit)]

    def redeliver(self, webhook_id: str, delivery_id: str) -> WebhookDelivery:
        path = f"webhooks/{segment(webhook_id)}/deliveries/{segment(delivery_id)}/redeliver"
        return WebhookDelivery.parse(self._transport.send("POST", path))
