"""`webhooks`: who is told when executions end, whether it arrives, and what was sent."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import connect, group, resolve_job
from cli.commands.options import AnswerOption, FormatOption, JobOption, LimitOption, YesOption
from cli.errors import ClientError, CliError, UsageMistakeError, WaitTimeoutError
from cli.results import Column, Format, field, moment, write_answer, write_list, write_object
from cli.terminal import confirm, say
from cli.values import is_id
from cli.waiting import POLL_SECONDS

if TYPE_CHECKING:
    from cli.client import Client
    from cli.webhook_records import Webhook, WebhookDelivery

# Longer than the server gives a receiver; a busy one may not have sent it by then.
PING_SECONDS = 20.0
PENDING = "pending"
COLUMNS: tuple[Column[Webhook], ...] = (
    Column("ID", field("id"), whole=True),
    Column("NAME", field("name")),
    Column("STANDING", lambda webhook: webhook.standing()),
    Column("URL", field("url")),
    Column("EVENTS", lambda webhook: webhook.events()),
    Column("OWNER", field("owner"), wide=True, differing=True),
    Column("JOB ID", field("job"), wide=True),
    Column("FAILING SINCE", moment("failing_since"), wide=True),
    Column("CREATED", moment("created_at"), wide=True),
)
DELIVERY_COLUMNS: tuple[Column[WebhookDelivery], ...] = (
    Column("ID", field("id"), whole=True),
    Column("EVENT", field("event")),
    Column("STATE", field("state")),
    Column("TRIES", field("attempts")),
    Column("ANSWER", field("status_code")),
    Column("CREATED", moment("created_at")),
    Column("NEXT", moment("next_try_at")),
    Column("ERROR", field("error")),
    Column("EXECUTION", field("execution"), wide=True),
    Column("TRIED", moment("tried_at"), wide=True),
    Column("RESPONSE", field("response"), wide=True),
)
WebhookArgument = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its name, or its id.")]


class Event(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    MISSED = "missed"
    SKIPPED = "skipped"


class State(StrEnum):
    PENDING = PENDING
    DELIVERED = "delivered"
    FAILED = "failed"


webhooks_app = group("webhooks", help="List webhooks, make, test and delete them.")


@webhooks_app.callback(invoke_without_command=True)
def list_webhooks(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List webhooks; make, test and delete them."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.webhooks(limit=limit)
    write_list(found, COLUMNS, output, nothing="No webhooks yet: ./punctual webhooks add NAME URL makes one.")


@webhooks_app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to: https://…")],
    event: Annotated[list[Event] | None, typer.Option(help="Only of these ends (repeat).")] = None,
    job: JobOption = None,
    output: AnswerOption = None,
) -> None:
    """Tell an address when executions end. Prints the secret that deliveries are signed with: it is not told again."""
    with connect() as client:
        job_id = None if job is None else resolve_job(client, job)
        made = client.create_webhook(name, url, events=event, job_id=job_id)
    say(f"Made the webhook {made.name}. Keep its secret: it is not told again.")
    write_answer(made.raw, output, short=made.secret)


@webhooks_app.command()
def show(webhook: WebhookArgument, output: FormatOption = Format.TABLE) -> None:
    """Print all of a webhook."""
    with connect() as client:
        found = _find(client, webhook)
    write_object(found.raw, output)


@webhooks_app.command()
def enable(webhook: WebhookArgument, output: AnswerOption = None) -> None:
    """Enable a webhook that was disabled, by somebody or because nothing arrived."""
    _switch(webhook, enabled=True, output=output)


@webhooks_app.command()
def disable(webhook: WebhookArgument, output: AnswerOption = None) -> None:
    """Send a webhook nothing until it is enabled."""
    _switch(webhook, enabled=False, output=output)


@webhooks_app.command()
def rotate(
    webhook: WebhookArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it was rotated within a day: the secret before that ends now.")
    ] = False,
    output: AnswerOption = None,
) -> None:
    """Give a webhook a new secret, and print it. For a day deliveries are signed with the former as well."""
    with connect() as client:
        rotated = client.rotate_webhook(_find(client, webhook).id, force=force)
    say(f"The webhook {rotated.name} has a new secret. Keep it: it is not told again.")
    write_answer(rotated.raw, output, short=rotated.secret)


@webhooks_app.command()
def delete(webhook: WebhookArgument, yes: YesOption = False) -> None:
    """Delete a webhook and the list of what was sent to it."""
    with connect() as client:
        found = _find(client, webhook)
        confirm(f"Delete the webhook {found.name} of {found.owner}?", yes=yes)
        client.delete_webhook(found.id)
    say(f"Deleted {found.name}.")


@webhooks_app.command()
def ping(webhook: WebhookArgument, output: AnswerOption = None) -> None:
    """Send a webhook a test, and say whether it arrived; exit code 1 if it did not."""
    deadline = time.monotonic() + PING_SECONDS
    with connect() as client:
        found = _find(client, webhook)
        sent = client.ping_webhook(found.id)
        while sent.state == PENDING and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            # It is among the newest, unless others are told of much at the moment.
            recent = client.deliveries(found.id, limit=100)
            sent = next((each for each in recent if each.id == sent.id), sent)
    write_answer(sent.raw, output)
    if sent.state == PENDING:
        raise WaitTimeoutError("The test was not sent yet: ./punctual webhooks deliveries tells what becomes of it.")
    if sent.error:
        raise CliError(f"The test did not arrive: {sent.error}")
    say(f"The test arrived: the answer was {sent.status_code}.")


@webhooks_app.command()
def deliveries(
    webhook: WebhookArgument,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List what was sent to a webhook, the newest first."""
    with connect() as client:
        found = client.deliveries(_find(client, webhook).id, state=state, limit=limit)
    nothing = "No delivery matches." if state else f"No deliveries yet: ./punctual webhooks ping {webhook} sends one."
    write_list(found, DELIVERY_COLUMNS, output, nothing=nothing)


@webhooks_app.command()
def redeliver(
    webhook: WebhookArgument,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="The id of a delivery.")],
    output: AnswerOption = None,
) -> None:
    """Send a delivery again, now, whatever became of it."""
    if not is_id(delivery):
        raise UsageMistakeError(f"{delivery!r} is not the id of a delivery: ./punctual webhooks deliveries lists them.")
    with connect() as client:
        sent = client.redeliver(_find(client, webhook).id, delivery)
    say(f"{sent.id} is sent again.")
    write_answer(sent.raw, output)


def _switch(webhook: str, *, enabled: bool, output: Format | None) -> None:
    with connect() as client:
        changed = client.edit_webhook(_find(client, webhook).id, {"enabled": enabled})
    say(f"{'Enabled' if enabled else 'Disabled'} {changed.name}.")
    write_answer(changed.raw, output)


def _find(client: Client, word: str) -> Webhook:
    if is_id(word):
        return client.webhook(word)
    named = client.webhooks(name=word, limit=2)
    if len(named) > 1:
        raise ClientError(f"Several owners have a webhook called {word!r}: name it by its id.")
    if not named:
        raise ClientError(f"There is no webhook called {word!r}: ./punctual webhooks lists them.")
    return named[0]
