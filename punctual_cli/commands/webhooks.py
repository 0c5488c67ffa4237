"""`webhooks`: notify addresses of finished executions, and inspect the deliveries."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import add_command_group, connect, only_match, resolve_job_id, unknown_name
from punctual_cli.argument_parsing import is_uuid
from punctual_cli.commands.options import FormatOption, JobOption, LimitOption, ResultFormatOption, YesOption
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_object, write_resource
from punctual_cli.output.terminal import confirm, write_message
from punctual_client.errors import PROGRAM, PunctualError, UsageError, WaitTimeoutError
from punctual_client.json_fields import optional_text_field
from punctual_client.resources.executions import POLL_INTERVAL_SECONDS

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.webhooks import Webhook, WebhookDelivery

# Longer than the timeout that the server gives a receiver; a busy server may need more.
PING_TIMEOUT_SECONDS = 20.0
PENDING = "pending"


def _describe_state(webhook: Webhook) -> str:
    if webhook.enabled:
        return "failing" if webhook.raw.get("failing_since") else "enabled"
    return optional_text_field(webhook.raw, "disabled_reason") or "disabled"


def _format_events(webhook: Webhook) -> str:
    events = webhook.raw.get("events")
    return ",".join(map(str, events)) if isinstance(events, list) else ""


COLUMNS: tuple[Column[Webhook], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("NAME", raw_field("name")),
    Column("STATE", _describe_state),
    Column("URL", raw_field("url")),
    Column("EVENTS", _format_events),
    Column("OWNER", raw_field("owner"), wide=True, shown_if_varied=True),
    Column("JOB ID", raw_field("job"), wide=True),
    Column("FAILING SINCE", time_field("failing_since"), wide=True),
    Column("CREATED", time_field("created_at"), wide=True),
)
DELIVERY_COLUMNS: tuple[Column[WebhookDelivery], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("EVENT", raw_field("event")),
    Column("STATE", raw_field("state")),
    Column("ATTEMPTS", raw_field("attempts")),
    Column("STATUS", raw_field("status_code")),
    Column("CREATED", time_field("created_at")),
    Column("NEXT ATTEMPT", time_field("next_try_at")),
    Column("ERROR", raw_field("error")),
    Column("EXECUTION", raw_field("execution"), wide=True),
    Column("LAST ATTEMPT", time_field("tried_at"), wide=True),
    Column("RESPONSE", raw_field("response"), wide=True),
)
WebhookArgument = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Webhook name or id.")]


class WebhookEvent(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    MISSED = "missed"
    SKIPPED = "skipped"


class DeliveryState(StrEnum):
    PENDING = PENDING
    DELIVERED = "delivered"
    FAILED = "failed"


webhooks_app = add_command_group("webhooks", help="List, create, test and delete webhooks.")


@webhooks_app.callback(invoke_without_command=True)
def list_webhooks(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List webhooks."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.webhooks(limit=limit)
    write_list(found, COLUMNS, output, if_empty=f"No webhooks yet: {PROGRAM} webhooks add NAME URL makes one.")


@webhooks_app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Webhook name.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Address to notify: https://…")],
    event: Annotated[
        list[WebhookEvent] | None, typer.Option(help="Only of executions with this outcome (repeatable).")
    ] = None,
    job: JobOption = None,
    output: ResultFormatOption = None,
) -> None:
    """Notify an address of finished executions. Prints the secret that signs deliveries, which is never shown again."""
    with connect() as client:
        job_id = None if job is None else resolve_job_id(client, job)
        created = client.create_webhook(name, url, events=event, job_id=job_id)
    write_message(f"Created the webhook {created.name}. Keep its secret: it is never shown again.")
    write_resource(created.raw, output, short=created.secret)


@webhooks_app.command()
def show(webhook: WebhookArgument, output: FormatOption = Format.TABLE) -> None:
    """Show all details of a webhook."""
    with connect() as client:
        found = _find_webhook(client, webhook)
    write_object(found.raw, output)


@webhooks_app.command()
def enable(webhook: WebhookArgument, output: ResultFormatOption = None) -> None:
    """Enable a webhook that was disabled, by a user or after too many failures."""
    _set_enabled(webhook, enabled=True, output=output)


@webhooks_app.command()
def disable(webhook: WebhookArgument, output: ResultFormatOption = None) -> None:
    """Disable a webhook: it is sent nothing until it is enabled again."""
    _set_enabled(webhook, enabled=False, output=output)


@webhooks_app.command()
def rotate(
    webhook: WebhookArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Rotate again within a day; the oldest secret stops working at once.")
    ] = False,
    output: ResultFormatOption = None,
) -> None:
    """Give a webhook a new secret and print it. For a day deliveries are signed with the old one too."""
    with connect() as client:
        rotated = client.rotate_webhook(_find_webhook(client, webhook).id, force=force)
    write_message(f"The webhook {rotated.name} has a new secret. Keep it: it is never shown again.")
    write_resource(rotated.raw, output, short=rotated.secret)


@webhooks_app.command()
def delete(webhook: WebhookArgument, yes: YesOption = False) -> None:
    """Delete a webhook and its delivery history."""
    with connect() as client:
        found = _find_webhook(client, webhook)
        confirm(f"Delete the webhook {found.name} of {found.owner}?", yes=yes)
        client.delete_webhook(found.id)
    write_message(f"Deleted {found.name}.")


@webhooks_app.command()
def ping(webhook: WebhookArgument, output: ResultFormatOption = None) -> None:
    """Send a test to a webhook, and wait for its answer. Exit code 1 if it did not arrive."""
    deadline = time.monotonic() + PING_TIMEOUT_SECONDS
    with connect() as client:
        found = _find_webhook(client, webhook)
        sent = client.ping_webhook(found.id)
        while sent.state == PENDING and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_SECONDS)
            # Normally it is among the newest.
            recent = client.deliveries(found.id, limit=100)
            sent = next((each for each in recent if each.id == sent.id), sent)
    write_resource(sent.raw, output)
    if sent.state == PENDING:
        raise WaitTimeoutError(f"The test was not sent yet: {PROGRAM} webhooks deliveries {webhook} shows its state.")
    if sent.error:
        raise PunctualError(f"The test did not arrive: {sent.error}")
    write_message(f"The test arrived: the answer was {sent.status_code}.")


@webhooks_app.command()
def deliveries(
    webhook: WebhookArgument,
    state: Annotated[DeliveryState | None, typer.Option(help="Filter by state.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the deliveries to a webhook, newest first."""
    with connect() as client:
        found = client.deliveries(_find_webhook(client, webhook).id, state=state, limit=limit)
    if_empty = "No delivery matches." if state else f"No deliveries yet: {PROGRAM} webhooks ping {webhook} sends one."
    write_list(found, DELIVERY_COLUMNS, output, if_empty=if_empty)


@webhooks_app.command()
def redeliver(
    webhook: WebhookArgument,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="Delivery id.")],
    output: ResultFormatOption = None,
) -> None:
    """Send a delivery again now, whatever its state."""
    if not is_uuid(delivery):
        raise UsageError(
            f"{delivery!r} is not the id of a delivery: {PROGRAM} webhooks deliveries {webhook} lists them."
        )
    with connect() as client:
        sent = client.redeliver(_find_webhook(client, webhook).id, delivery)
    write_message(f"Sending {sent.id} again.")
    write_resource(sent.raw, output)


def _set_enabled(webhook: str, *, enabled: bool, output: Format | None) -> None:
    with connect() as client:
        changed = client.edit_webhook(_find_webhook(client, webhook).id, {"enabled": enabled})
    write_message(f"{'Enabled' if enabled else 'Disabled'} {changed.name}.")
    write_resource(changed.raw, output)


def _find_webhook(client: Client, word: str) -> Webhook:
    if is_uuid(word):
        return client.webhook(word)
    webhook = only_match(client.webhooks(name=word, limit=2), "webhook", word)
    if webhook is None:
        raise unknown_name("webhook", word, "webhooks")
    return webhook
