"""/webhooks: who is told that executions have ended, and what became of telling them."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import BoundedListField, IdField, OneOfField, StrictSerializer, TextField, TruthField
from jobs.api.job_edit_input import WithoutDefaults
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of, walked_page
from jobs.models import DeliveryState, Webhook, WebhookDelivery
from jobs.models.webhook import EVENTS
from jobs.querysets.visibility import visible_to
from jobs.services import webhooks
from jobs.services.delivery_lists import ORDERING, list_deliveries
from jobs.states import State
from jobs.webhooks.addresses import MAX_URL_LENGTH

DEFAULT_EVENTS = [State.SUCCEEDED.value, State.FAILED.value, State.TIMED_OUT.value, State.CANCELLED.value]


class WebhookQuery(PageQuery):
    name = serializers.CharField(required=False, max_length=100, help_text="Only the one that is called so.")


class WebhookInput(StrictSerializer):
    name = TextField(max_length=100, help_text="Yours alone.")
    url = TextField(max_length=MAX_URL_LENGTH, help_text="https://…, on the public internet; any port.")
    events = BoundedListField(
        child=OneOfField(EVENTS),
        default=DEFAULT_EVENTS,
        max_length=len(EVENTS),
        help_text="How executions end that it is told of.",
    )
    job = IdField(
        source="job_id", default=None, allow_null=True, help_text="Only executions of this job; null: of all of yours."
    )


class WebhookEditInput(WithoutDefaults, WebhookInput):
    """What is left out stays as it is."""

    enabled = TruthField()


class WebhookRotateInput(StrictSerializer):
    force = TruthField(
        default=False, help_text="Even if it was rotated within 24 hours: what it had before that signs no more."
    )


class WebhookOutput(serializers.ModelSerializer[Webhook]):
    owner = serializers.CharField(source="owner.username")
    events = serializers.ListField(child=serializers.ChoiceField(EVENTS))
    job = serializers.UUIDField(source="job_id", allow_null=True)

    class Meta:
        model = Webhook
        fields = [
            "id", "name", "owner", "url", "events", "job", "enabled", "disabled_reason", "failing_since", "created_at",
            "updated_at",
        ]  # fmt: skip
        read_only_fields = fields


class WebhookSecretOutput(WebhookOutput):
    secret = serializers.SerializerMethodField(help_text="What deliveries are signed with; no other answer has it.")

    class Meta(WebhookOutput.Meta):
        fields = [*WebhookOutput.Meta.fields, "secret"]
        read_only_fields = fields

    def get_secret(self, _: Webhook) -> str:
        secret: str = self.context["secret"]
        return secret


class DeliveryQuery(PageQuery):
    state = OneOfField(DeliveryState.choices, required=False, help_text="Those that stand so.")


class WebhookDeliveryOutput(serializers.ModelSerializer[WebhookDelivery]):
    execution = serializers.UUIDField(source="execution_id", allow_null=True, help_text="Null: a test.")
    next_try_at = serializers.SerializerMethodField(help_text="Null: it is over.")

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


def webhooks_of(user: User) -> QuerySet[Webhook]:
    """Without what is sealed, which no page needs."""
    return visible_to(user, Webhook.objects.defer("sealed", "previous_sealed")).select_related("owner")


class Webhooks(ApiView):
    @extend_schema(
        operation_id="webhooks_list",
        summary="List webhooks",
        parameters=[WebhookQuery],
        responses=page_of(WebhookOutput),
    )
    def get(self, request: Request) -> Response:
        wanted = {"name": name} if (name := read_query(WebhookQuery, request).get("name")) is not None else {}
        return page(webhooks_of(user_of(request)).filter(**wanted), request, WebhookOutput)

    @extend_schema(
        operation_id="webhooks_create",
        summary="Create a webhook",
        request=WebhookInput,
        responses={201: WebhookSecretOutput},
    )
    def post(self, request: Request) -> Response:
        """The answer has the secret that deliveries are signed with: keep it, it is not told again."""
        body = cast("dict[str, Any]", read_body(WebhookInput, request))
        webhook, secret = webhooks.create_webhook(owner=user_of(request), **body)
        return Response(
            WebhookSecretOutput(webhook, context={"secret": secret}).data,
            status=status.HTTP_201_CREATED,
            headers={"Location": f"{request.path}/{webhook.id}"},
        )


class WebhookDetail(ApiView):
    @extend_schema(operation_id="webhooks_read", summary="Read a webhook", responses=WebhookOutput)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        return Response(WebhookOutput(find(webhooks_of(user_of(request)), webhook_id)).data)

    @extend_schema(
        operation_id="webhooks_edit", summary="Edit a webhook", request=WebhookEditInput, responses=WebhookOutput
    )
    def patch(self, request: Request, webhook_id: UUID) -> Response:
        body = cast("dict[str, Any]", read_body(WebhookEditInput, request))
        rows = webhooks_of(user_of(request))
        find(rows, webhook_id)
        webhooks.edit_webhook(webhook_id, **body)
        return Response(WebhookOutput(rows.get(id=webhook_id)).data)

    @extend_schema(operation_id="webhooks_delete", summary="Delete a webhook", request=None, responses={204: None})
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """With the list of what was sent to it; what waits to be sent is not."""
        read_body(NoInput, request)
        find(webhooks_of(user_of(request)), webhook_id)
        webhooks.delete_webhook(webhook_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class WebhookRotate(ApiView):
    @extend_schema(
        operation_id="webhooks_rotate",
        summary="Rotate the secret of a webhook",
        request=WebhookRotateInput,
        responses=WebhookSecretOutput,
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """A new secret, told in this answer alone. For 24 hours deliveries are signed with the former as well."""
        body = cast("dict[str, Any]", read_body(WebhookRotateInput, request))
        rows = webhooks_of(user_of(request))
        find(rows, webhook_id)
        secret = webhooks.rotate_webhook(webhook_id, **body)
        return Response(WebhookSecretOutput(rows.get(id=webhook_id), context={"secret": secret}).data)


class WebhookPing(ApiView):
    @extend_schema(
        operation_id="webhooks_ping", summary="Test a webhook", request=None, responses={202: WebhookDeliveryOutput}
    )
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Sends a `ping`, once; its delivery says what came of it."""
        read_body(NoInput, request)
        find(webhooks_of(user_of(request)), webhook_id)
        delivery = webhooks.ping_webhook(webhook_id)
        return Response(WebhookDeliveryOutput(delivery).data, status=status.HTTP_202_ACCEPTED)


class WebhookDeliveries(ApiView):
    @extend_schema(
        operation_id="webhooks_deliveries",
        summary="List the deliveries of a webhook",
        parameters=[DeliveryQuery],
        responses=page_of(WebhookDeliveryOutput),
    )
    def get(self, request: Request, webhook_id: UUID) -> Response:
        query = read_query(DeliveryQuery, request)
        rows = find(webhooks_of(user_of(request)), webhook_id).deliveries.all()
        state = str(query["state"]) if "state" in query else None
        return walked_page(rows, list_deliveries(rows, state), ORDERING, request, WebhookDeliveryOutput)


class WebhookRedeliver(ApiView):
    @extend_schema(
        operation_id="webhooks_redeliver",
        summary="Send a delivery again",
        request=None,
        responses={202: WebhookDeliveryOutput},
    )
    def post(self, request: Request, webhook_id: UUID, delivery_id: UUID) -> Response:
        """Sends it now, whatever became of it, under the same id; if need be again for about a day."""
        read_body(NoInput, request)
        find(find(webhooks_of(user_of(request)), webhook_id).deliveries.all(), delivery_id)
        delivery = webhooks.redeliver(delivery_id)
        return Response(WebhookDeliveryOutput(delivery).data, status=status.HTTP_202_ACCEPTED)
