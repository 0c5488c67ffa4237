"""Read-only pages of webhooks and deliveries; new secrets go to their owners, through the API only."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.admin.base import ReadOnlyAdmin
from jobs.models import Webhook, WebhookDelivery
from jobs.notifications.webhooks import subscriptions


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin[Webhook]):
    list_display = ["name", "owner", "url", "enabled", "disabled_reason", "failing_since"]
    list_filter = ["enabled"]
    list_select_related = ["owner"]
    search_fields = ["name", "=id", "owner__username", "host"]
    ordering = ["-id"]
    fields = [
        "id", "name", "owner", "url", "events", "job", "enabled", "disabled_reason", "failing_since", "created_at",
        "updated_at",
    ]  # fmt: skip
    readonly_fields = ["id", "created_at", "updated_at"]
    actions = ["disable", "enable"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Webhook]:
        return super().get_queryset(request).defer("sealed", "previous_sealed")

    @admin.action(description="Disable selected webhooks", permissions=["operate"])
    def disable(self, request: HttpRequest, rows: QuerySet[Webhook]) -> None:
        self._set(request, rows, enabled=False)

    @admin.action(description="Enable selected webhooks", permissions=["operate"])
    def enable(self, request: HttpRequest, rows: QuerySet[Webhook]) -> None:
        self._set(request, rows, enabled=True)

    def _set(self, request: HttpRequest, rows: QuerySet[Webhook], *, enabled: bool) -> None:
        for webhook in rows:
            subscriptions.edit_webhook(webhook.id, enabled=enabled)
        count, done = len(rows), "Enabled" if enabled else "Disabled"
        self.message_user(request, f"{done} {count} webhook{'' if count == 1 else 's'}.", messages.SUCCESS)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(ReadOnlyAdmin[WebhookDelivery]):
    list_display = ["id", "webhook", "event", "state", "attempts", "status_code", "error", "created_at"]
    list_filter = ["state"]
    list_select_related = ["webhook"]
    search_fields = ["=id", "=execution_id", "webhook__name"]
    ordering = ["-id"]
    fields = [
        "id", "webhook", "execution", "event", "state", "attempts", "tries_left", "next_try_at", "tried_at",
        "status_code", "error", "response", "created_at", "ended_at",
    ]  # fmt: skip
    readonly_fields = ["id"]
    actions = ["redeliver"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookDelivery]:
        return super().get_queryset(request).defer("webhook__sealed", "webhook__previous_sealed")

    @admin.action(description="Redeliver selected deliveries", permissions=["operate"])
    def redeliver(self, request: HttpRequest, rows: QuerySet[WebhookDelivery]) -> None:
        count = self.run_for_each(request, rows, lambda delivery: subscriptions.redeliver(delivery.id))
        if count:
            text = f"Redelivering {count} deliver{'y' if count == 1 else 'ies'}."
            self.message_user(request, text, messages.SUCCESS)
