"""/webhooks: notifications about finished executions, and their deliveries."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import (
    BoundedListField,
    EmptyInput,
    OneOfField,
    PartialInput,
    StrictBooleanField,
    StrictSerializer,
    StrictUUIDField,
    TextField,
)
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import (
    ApiView,
    get_or_404,
    paginate,
    paginate_filtered,
    read_body,
    read_query,
    require_user,
    respond_created,
)
from jobs.domain.states import State
from jobs.models import DeliveryState, Webhook, WebhookDelivery
from jobs.models.visibility import visible_to
from jobs.models.webhook import WEBHOOK_EVENTS
from jobs.notifications.webhooks import subscriptions
from jobs.notifications.webhooks.address_policy import MAX_URL_LENGTH
from jobs.notifications.webhooks.delivery_list import ORDERING, list_deliveries

DEFAULT_EVENTS = [State.SUCCEEDED.value, State.FAILED.value, State.TIMED_OUT.value, State.CANCELLED.value]


class WebhookQuery(PageQuery):
    name = serializers.CharField(required=False, max_length=100, help_text="Filter by exact name.")


class WebhookInput(StrictSerializer):
    name = TextField(max_length=100, help_text="Name, unique among your webhooks.")
    url = TextField(max_length=MAX_URL_LENGTH, help_text="Public https:// URL, on any port.")
    events = BoundedListField(
        child=OneOfField(WEBHOOK_EVENTS),
        default=DEFAULT_EVENTS,
        max_length=len(WEBHOOK_EVENTS),
        help_text="Outcomes to notify about.",
    )
    job = StrictUUIDField(
        source="job_id",
        default=None,
        allow_null=True,
        help_text="Restrict to executions of this job; null for all of your jobs.",
    )


class WebhookEditInput(PartialInput, WebhookInput):
    """Omitted fields stay unchanged."""

    enabled = StrictBooleanField()


class WebhookRotateInput(StrictSerializer):
    force = StrictBooleanField(
        default=False,
        help_text="Rotate even within 24 hours of the last rotation, which invalidates the secret before that one.",
    )


class WebhookOutput(serializers.ModelSerializer[Webhook]):
    owner = serializers.CharField(source="owner.username")
    events = serializers.ListField(child=serializers.ChoiceField(WEBHOOK_EVENTS))
    job = serializers.UUIDField(source="job_id", allow_null=True)

    class Meta:
        model = Webhook
        fields = [
            "id", "name", "owner", "url", "events", "job", "enabled", "disabled_reason", "failing_since", "created_at",
            "updated_at",
        ]  # fmt: skip
        read_only_fields = fields


class WebhookSecretOutput(WebhookOutput):
    secret = serializers.SerializerMethodField(help_text="Secret that signs deliveries. Shown only once.")

    class Meta(WebhookOutput.Meta):
        fields = [*WebhookOutput.Meta.fields, "secret"]
        read_only_fields = fields

    def get_secret(self, _: Webhook) -> str:
        secret: str = self.context["secret"]
        return secret


class DeliveryQuery(PageQuery):
    state = OneOfField(DeliveryState.choices, required=False, help_text="Filter by state.")


class WebhookDeliveryOutput(serializers.ModelSerializer[WebhookDelivery]):
    execution = serializers.UUIDField(source="execution_id", allow_null=True, help_text="Null for a ping.")
    next_try_at = serializers.SerializerMethodField(help_text="Null once the delivery has ended.")

    class Meta:
        model = WebhookDelivery
        fields = [
            "id", "event", "execution", "state", "attempts", "tries_left", "next_try_at", "tried_at", "status_code",
            "error", "response", "created_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_next_try_at(self, delivery: WebhookDelivery) -> str | None:
        if delivery.state != DeliveryState.PENDING:
            return None
        return serializers.DateTimeField().to_representation(delivery.next_try_at)


def list_visible_webhooks(user: User) -> QuerySet[Webhook]:
    """Return visible webhooks without their sealed secrets."""
    return visible_to(user, Webhook.objects.defer("sealed", "previous_sealed")).select_related("owner")


class Webhooks(ApiView):
    @extend_schema(
        operation_id="webhooks_list",
        summary="List webhooks",
        parameters=[WebhookQuery],
        responses=build_page_serializer(WebhookOutput),
    )
    def get(self, request: Request) -> Response:
        rows = list_visible_webhooks(require_user(request))
        if (name := read_query(WebhookQuery, request).get("name")) is not None:
            rows = rows.filter(name=name)
        return paginate(rows, request, WebhookOutput)

    @extend_schema(
        operation_id="webhooks_create",
        summary="Create a webhook",
        request=WebhookInput,
        responses={201: WebhookSecretOutput},
    )
    def post(self, request: Request) -> Response:
        """The response contains the secret that signs deliveries. Store it: it is shown only once."""
        body = cast("dict[str, Any]", read_body(WebhookInput, request))
        webhook, secret = subscriptions.create_webhook(owner=require_user(request), **body)
        return respond_created(request, webhook.id, WebhookSecretOutput(webhook, context={"secret": secret}).data)


class WebhookDetail(ApiView):
    @extend_schema(operation_id="webhooks_read", summary="Read a webhook", responses=WebhookOutput)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        return Response(WebhookOutput(get_or_404(list_visible_webhooks(require_user(request)), webhook_id)).data)

    @extend_schema(
        operation_id="webhooks_edit", summary="Edit a webhook", request=WebhookEditInput, responses=WebhookOutput
    )
    def patch(self, request: Request, webhook_id: UUID) -> Response:
        body = cast("dict[str, Any]", read_body(WebhookEditInput, request))
        rows = list_visible_webhooks(require_user(request))
        get_or_404(rows, webhook_id)
        subscriptions.edit_webhook(webhook_id, **body)
        return Response(WebhookOutput(rows.get(id=webhook_id)).data)

    @extend_schema(operation_id="webhooks_delete", summary="Delete a webhook", request=None, responses={204: None})
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """Delete the webhook and its deliveries. Pending deliveries are not sent."""
        read_body(EmptyInput, request)
        get_or_404(list_visible_webhooks(require_user(request)), webhook_id)
        subscriptions.delete_webhook(webhook_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class WebhookRotate(ApiView):
    @extend_schema(
        operation_id="webhooks_rotate",
        summary="Rotate the secret of a webhook",
        request=WebhookRotateInput,
        responses=WebhookSecretOutput,
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Generate a new secret, shown only once. For 24 hours, deliveries carry signatures of both secrets."""
        body = cast("dict[str, Any]", read_body(WebhookRotateInput, request))
        rows = list_visible_webhooks(require_user(request))
        get_or_404(rows, webhook_id)
        secret = subscriptions.rotate_webhook_secret(webhook_id, **body)
        return Response(WebhookSecretOutput(rows.get(id=webhook_id), context={"secret": secret}).data)


class WebhookPing(ApiView):
    @extend_schema(
        operation_id="webhooks_ping", summary="Test a webhook", request=None, responses={202: WebhookDeliveryOutput}
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Send a `ping`, without retries; its delivery records the result."""
        read_body(EmptyInput, request)
        get_or_404(list_visible_webhooks(require_user(request)), webhook_id)
        delivery = subscriptions.ping_webhook(webhook_id)
        return Response(WebhookDeliveryOutput(delivery).data, status=status.HTTP_202_ACCEPTED)


class WebhookDeliveries(ApiView):
    @extend_schema(
        operation_id="webhooks_deliveries",
        summary="List the deliveries of a webhook",
        parameters=[DeliveryQuery],
        responses=build_page_serializer(WebhookDeliveryOutput),
    )
    def get(self, request: Request, webhook_id: UUID) -> Response:
        query = read_query(DeliveryQuery, request)
        rows = get_or_404(list_visible_webhooks(require_user(request)), webhook_id).deliveries.all()
        state = str(query["state"]) if "state" in query else None
        return paginate_filtered(rows, list_deliveries(rows, state), ORDERING, request, WebhookDeliveryOutput)


class WebhookRedeliver(ApiView):
    @extend_schema(
        operation_id="webhooks_redeliver",
        summary="Redeliver a webhook event",
        request=None,
        responses={202: WebhookDeliveryOutput},
    )
    def post(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Send the delivery again now, under the same id and whatever its state, with retries for about a day."""
        read_body(EmptyInput, request)
        get_or_404(get_or_404(list_visible_webhooks(require_user(request)), webhook_id).deliveries.all(), delivery_id)
        delivery = subscriptions.redeliver(delivery_id)
        return Response(WebhookDeliveryOutput(delivery).data, status=status.HTTP_202_ACCEPTED)
