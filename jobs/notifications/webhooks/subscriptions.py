"""Commands on webhooks: create, edit, rotate the secret, ping, delete; and redeliver a delivery.

Invariant: the signing secret is returned once, when it is generated, and stored sealed.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from jobs.access.quotas import check_object_quota
from jobs.access.secrets import ResealResult, load_keyring, reseal_page
from jobs.audit.log import record_change
from jobs.audit.snapshots import hide_values
from jobs.db import wakeups
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.encryption import Keyring
from jobs.domain.errors import Conflict, InvalidInput, SecretsKeysNotConfigured
from jobs.domain.job_edit import KEEP, Keep
from jobs.domain.text_validation import UNREADABLE_NAME_MESSAGE, is_readable_name
from jobs.models import DeliveryState, Job, Webhook, WebhookDelivery
from jobs.models.webhook import WEBHOOK_EVENTS
from jobs.notifications.webhooks.address_policy import AddressPolicy, AddressRefused, Target
from jobs.notifications.webhooks.pacing import MAX_TRIES
from jobs.notifications.webhooks.payload import PING
from jobs.notifications.webhooks.signing import generate_secret

_DELETE_BATCH_DELIVERIES = 5000


def create_webhook(
    *, owner: User, name: str, url: str, events: Collection[str], job_id: UUID | None = None
) -> tuple[Webhook, str]:
    """Create a webhook; return it with its secret, which is never shown again."""
    target, secret = _checked_url(url), generate_secret()
    webhook = Webhook(owner=owner, name=_checked_name(name), url=url, host=target.host, events=_checked_events(events))
    webhook.job = _checked_job(owner.pk, job_id)
    webhook.sealed = _seal_secret(webhook, secret)
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        check_object_quota(owner, Webhook, limits.MAX_WEBHOOKS_PER_OWNER)
        _save_webhook(webhook)
        after = _snapshot(webhook) | hide_values({}, {"url": url})[1]
        record_change("webhook.created", webhook, owner_id=owner.pk, after=after)
    return webhook, secret


def edit_webhook(
    webhook_id: UUID,
    *,
    name: str | Keep = KEEP,
    url: str | Keep = KEEP,
    events: Collection[str] | Keep = KEEP,
    job_id: UUID | Keep | None = KEEP,
    enabled: bool | Keep = KEEP,
) -> None:
    """Edit a webhook; pending deliveries use the new URL, and enabling it resets `failing_since`."""
    target = None if url is KEEP else _checked_url(url)
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        webhook = _lock_webhook(webhook_id)
        before, former_url = _snapshot(webhook), webhook.url
        if name is not KEEP:
            webhook.name = _checked_name(name)
        if url is not KEEP and target is not None:
            webhook.url, webhook.host = url, target.host
        if events is not KEEP:
            webhook.events = _checked_events(events)
        if job_id is not KEEP:
            webhook.job = _checked_job(webhook.owner_id, job_id)
        if enabled is not KEEP and enabled != webhook.enabled:
            webhook.enabled, webhook.disabled_reason, webhook.failing_since = enabled, "", None
        _save_webhook(webhook)
        url_before, url_after = hide_values({"url": former_url}, {"url": webhook.url})
        after = _snapshot(webhook) | url_after
        record_change("webhook.edited", webhook, owner_id=webhook.owner_id, before=before | url_before, after=after)


def rotate_webhook_secret(webhook_id: UUID, *, force: bool = False) -> str:
    """Generate and return a new secret; the former one signs too for a day."""
    secret = generate_secret()
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        webhook, now = _lock_webhook(webhook_id), database_now()
        if not force and webhook.previous_until and webhook.previous_until > now:
            raise Conflict(
                "The webhook's secret was rotated recently, and the former one signs too until"
                f" {webhook.previous_until:%Y-%m-%d %H:%M:%S} UTC. Rotating again would break receivers that still use"
                " the former one. Wait until then, or force it (force: true, --force)."
            )
        webhook.previous_sealed = webhook.sealed
        webhook.previous_until = now + timedelta(seconds=limits.WEBHOOK_ROTATION_SECONDS)
        webhook.sealed = _seal_secret(webhook, secret)
        webhook.save()
        record_change("webhook.rotated", webhook, owner_id=webhook.owner_id)
    return secret


def delete_webhook(webhook_id: UUID) -> None:
    """Disable the webhook, delete its deliveries in batches, then delete the webhook."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        webhook = _lock_webhook(webhook_id)
        record_change("webhook.deleted", webhook, owner_id=webhook.owner_id, before=_snapshot(webhook))
        Webhook.objects.filter(id=webhook_id).update(enabled=False)
    while _delete_batch(webhook_id) == _DELETE_BATCH_DELIVERIES:
        pass
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        # Finishing an execution waits for this lock, so only deliveries added since are deleted under it.
        Webhook.objects.select_for_update().get(id=webhook_id).delete()


def ping_webhook(webhook_id: UUID) -> WebhookDelivery:
    """Queue a test delivery."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        webhook = _lock_webhook(webhook_id)
        _check_enabled(webhook)
        pings = webhook.deliveries.filter(execution=None).order_by("-id")
        kept = pings.values_list("id", flat=True)[: limits.MAX_STORED_WEBHOOK_PINGS - 1]
        pings.exclude(id__in=list(kept)).delete()
        now = database_now()
        delivery = WebhookDelivery.objects.create(
            webhook=webhook, event=PING, tries_left=1, next_try_at=now, created_at=now
        )
        record_change("webhook.pinged", webhook, owner_id=webhook.owner_id, after={"delivery": delivery.id})
        transaction.on_commit(wakeups.notify_capacity_freed)
    return delivery


def redeliver(delivery_id: UUID) -> WebhookDelivery:
    """Queue a delivery again under the same id, with all its tries."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        delivery = (
            WebhookDelivery.objects.select_for_update(no_key=True, of=("self",))
            .select_related("webhook")
            .get(id=delivery_id)
        )
        _check_enabled(delivery.webhook)
        delivery.state, delivery.ended_at, delivery.next_try_at = DeliveryState.PENDING, None, database_now()
        delivery.tries_left = MAX_TRIES
        delivery.save(update_fields=["state", "ended_at", "next_try_at", "tries_left"])
        webhook = delivery.webhook
        record_change("webhook.redelivered", webhook, owner_id=webhook.owner_id, after={"delivery": delivery.id})
        transaction.on_commit(wakeups.notify_capacity_freed)
    return delivery


def open_signing_keys(webhook: Webhook, *, at: datetime) -> list[str]:
    """Return the secrets that sign deliveries at that time, the newest first."""
    ring = _require_keyring()
    sealed = [webhook.sealed]
    if webhook.previous_sealed is not None and webhook.previous_until and webhook.previous_until > at:
        sealed.append(webhook.previous_sealed)
    return [ring.open(bytes(each), owner_id=webhook.owner_id, name=_seal_name(webhook)) for each in sealed]


def reseal_webhooks(after: UUID | None = None, limit: int = limits.RESEAL_BATCH_SECRETS) -> ResealResult:
    """Reseal a page of signing secrets, as `reseal_secrets` does for secrets of jobs."""
    return reseal_page(
        Webhook.objects.all(),
        ["sealed", "previous_sealed"],
        owner_and_name=lambda webhook: (webhook.owner_id, _seal_name(webhook)),
        after=after,
        limit=limit,
    )


def _snapshot(webhook: Webhook) -> dict[str, object]:
    """Return the audited values; of the URL, which may contain a secret, only the host."""
    return {
        "name": webhook.name,
        "host": webhook.host,
        "events": webhook.events,
        "job": webhook.job_id,
        "enabled": webhook.enabled,
    }


def _delete_batch(webhook_id: UUID) -> int:
    with transaction.atomic(), with_timeouts(statement_seconds=20):
        batch = (
            WebhookDelivery.objects.filter(webhook_id=webhook_id)
            .order_by("-id")
            .values("id")[:_DELETE_BATCH_DELIVERIES]
        )
        return WebhookDelivery.objects.filter(id__in=batch).delete()[0]


def _lock_webhook(webhook_id: UUID) -> Webhook:
    return Webhook.objects.select_for_update(no_key=True).get(id=webhook_id)


def _save_webhook(webhook: Webhook) -> None:
    try:
        with transaction.atomic():
            webhook.save()
    except IntegrityError:
        raise Conflict(f"There is a webhook called {webhook.name} already; choose another name.") from None


def _check_enabled(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise Conflict(f"The webhook is disabled; enable it first. {webhook.disabled_reason}".rstrip())


def _checked_name(name: str) -> str:
    if not is_readable_name(name):
        raise InvalidInput("name", UNREADABLE_NAME_MESSAGE)
    return name


def _checked_events(events: Collection[str]) -> list[str]:
    if not events or not set(events) <= set(WEBHOOK_EVENTS):
        raise InvalidInput("events", f"Name at least one event of: {', '.join(WEBHOOK_EVENTS)}.")
    return sorted(set(events))


def _checked_job(owner_id: int, job_id: UUID | None) -> Job | None:
    if job_id is None:
        return None
    job = Job.objects.filter(id=job_id, owner_id=owner_id).first()
    if job is None:
        raise InvalidInput("job", "The webhook's owner has no such job.")
    return job


def _checked_url(url: str) -> Target:
    policy: AddressPolicy = settings.PUNCTUAL_WEBHOOK_REACH
    try:
        target = policy.parse_url(url)
    except ValueError as error:
        raise InvalidInput("url", str(error)) from None
    try:
        # Numeric addresses are refused here, in any spelling; names are resolved and checked at every sending.
        found = socket.getaddrinfo(target.host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return target
    try:
        policy.check(str(entry[4][0]) for entry in found)
    except AddressRefused as error:
        raise InvalidInput("url", str(error)) from None
    return target


def _seal_secret(webhook: Webhook, secret: str) -> bytes:
    return _require_keyring().seal(secret, owner_id=webhook.owner_id, name=_seal_name(webhook))


def _seal_name(webhook: Webhook) -> str:
    """Return a name that no secret of a job can have, so that a copied sealed value does not open."""
    return f"webhook:{webhook.id}"


def _require_keyring() -> Keyring:
    ring = load_keyring()
    if ring is None:
        raise SecretsKeysNotConfigured
    return ring
