"""Webhooks of owners: created, edited, given new secrets, tested, deleted; and what was sent, sent again.

Invariant: the secret that deliveries are signed with is told once, when it is made, and stored sealed.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from jobs import conf, wakeups
from jobs.errors import Conflict, InvalidInput, SecretsNotKept
from jobs.models import DeliveryState, Job, Webhook, WebhookDelivery
from jobs.models.webhook import EVENTS
from jobs.sealing import Keyring
from jobs.services.audit_trail import record
from jobs.services.audit_values import hidden
from jobs.services.database import bounded
from jobs.services.job_edit import KEEP, Keep
from jobs.services.owner_limits import check_room_for_another
from jobs.services.schedules import database_now
from jobs.services.secrets import Resealed, keyring, reseal_page
from jobs.services.webhook_payload import PING
from jobs.storable import UNREADABLE_NAME, is_readable_name
from jobs.webhooks.addresses import AddressRefused, Reach, Target
from jobs.webhooks.pacing import MAX_TRIES
from jobs.webhooks.signing import new_secret

_DELETE_BATCH = 5000


def create_webhook(
    *, owner: User, name: str, url: str, events: Collection[str], job_id: UUID | None = None
) -> tuple[Webhook, str]:
    """The webhook, and its secret: nobody is told it again."""
    target, secret = _checked_url(url), new_secret()
    webhook = Webhook(owner=owner, name=_checked_name(name), url=url, host=target.host, events=_checked_events(events))
    webhook.job = _checked_job(owner.pk, job_id)
    webhook.sealed = _sealed(webhook, secret)
    with transaction.atomic(), bounded(statement_seconds=5):
        check_room_for_another(owner, Webhook, conf.MAX_WEBHOOKS_PER_OWNER)
        _save(webhook)
        told = _told(webhook) | hidden({}, {"url": url})[1]
        record("webhook.created", webhook, owner_id=owner.pk, after=told)
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
    """What was announced already is sent to the new address. Enabled anew, it is failing no more until it fails."""
    target = None if url is KEEP else _checked_url(url)
    with transaction.atomic(), bounded(statement_seconds=5):
        webhook = _locked(webhook_id)
        before, former = _told(webhook), webhook.url
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
        _save(webhook)
        url_before, url_after = hidden({"url": former}, {"url": webhook.url})
        after = _told(webhook) | url_after
        record("webhook.edited", webhook, owner_id=webhook.owner_id, before=before | url_before, after=after)


def rotate_webhook(webhook_id: UUID, *, force: bool = False) -> str:
    """A new secret, told once. For a day deliveries are signed with the former as well, and `force` ends that day."""
    secret = new_secret()
    with transaction.atomic(), bounded(statement_seconds=5):
        webhook, now = _locked(webhook_id), database_now()
        if not force and webhook.previous_until and webhook.previous_until > now:
            raise Conflict(
                "The webhook has a new secret already, and until"
                f" {webhook.previous_until:%Y-%m-%d %H:%M:%S} UTC the former signs, too; another would end that at"
                " once, for a receiver that still has the former. Wait until then, or force it (force: true, --force)."
            )
        webhook.previous_sealed = webhook.sealed
        webhook.previous_until = now + timedelta(seconds=conf.WEBHOOK_ROTATION_SECONDS)
        webhook.sealed = _sealed(webhook, secret)
        webhook.save()
        record("webhook.rotated", webhook, owner_id=webhook.owner_id)
    return secret


def delete_webhook(webhook_id: UUID) -> None:
    """With all that was sent to it, which may be much: first it is told of nothing more, and its row goes last."""
    with transaction.atomic(), bounded(statement_seconds=5):
        webhook = _locked(webhook_id)
        record("webhook.deleted", webhook, owner_id=webhook.owner_id, before=_told(webhook))
        Webhook.objects.filter(id=webhook_id).update(enabled=False)
    while _delete_batch(webhook_id) == _DELETE_BATCH:
        pass
    with transaction.atomic(), bounded(statement_seconds=10):
        # Who ends executions meanwhile waits for this lock, so it is held for what came since alone.
        Webhook.objects.select_for_update().get(id=webhook_id).delete()


def ping_webhook(webhook_id: UUID) -> WebhookDelivery:
    """A delivery that tells of nothing, to see whether it arrives."""
    with transaction.atomic(), bounded(statement_seconds=5):
        webhook = _locked(webhook_id)
        _refuse_disabled(webhook)
        tests = webhook.deliveries.filter(execution=None).order_by("-id")
        kept = tests.values_list("id", flat=True)[: conf.MAX_WEBHOOK_TESTS_KEPT - 1]
        tests.exclude(id__in=list(kept)).delete()
        now = database_now()
        delivery = WebhookDelivery.objects.create(
            webhook=webhook, event=PING, tries_left=1, next_try_at=now, created_at=now
        )
        record("webhook.pinged", webhook, owner_id=webhook.owner_id, after={"delivery": delivery.id})
        transaction.on_commit(wakeups.tell_of_room)
    return delivery


def redeliver(delivery_id: UUID) -> WebhookDelivery:
    """Sends it now, under the same id, with all tries before it."""
    with transaction.atomic(), bounded(statement_seconds=5):
        delivery = (
            WebhookDelivery.objects.select_for_update(no_key=True, of=("self",))
            .select_related("webhook")
            .get(id=delivery_id)
        )
        _refuse_disabled(delivery.webhook)
        delivery.state, delivery.ended_at, delivery.next_try_at = DeliveryState.PENDING, None, database_now()
        delivery.tries_left = MAX_TRIES
        delivery.save(update_fields=["state", "ended_at", "next_try_at", "tries_left"])
        webhook = delivery.webhook
        record("webhook.redelivered", webhook, owner_id=webhook.owner_id, after={"delivery": delivery.id})
        transaction.on_commit(wakeups.tell_of_room)
    return delivery


def open_keys(webhook: Webhook, *, at: datetime) -> list[str]:
    """What its deliveries are signed with then, the newest first."""
    ring = _keyring()
    sealed = [webhook.sealed]
    if webhook.previous_sealed is not None and webhook.previous_until and webhook.previous_until > at:
        sealed.append(webhook.previous_sealed)
    return [ring.open(bytes(each), owner_id=webhook.owner_id, name=_bound_name(webhook)) for each in sealed]


def reseal_webhooks(after: UUID | None = None, limit: int = conf.RESEAL_BATCH_SECRETS) -> Resealed:
    """As `reseal_secrets`, for what deliveries are signed with."""
    return reseal_page(
        Webhook.objects.all(),
        ["sealed", "previous_sealed"],
        owner_and_name=lambda webhook: (webhook.owner_id, _bound_name(webhook)),
        after=after,
        limit=limit,
    )


def _told(webhook: Webhook) -> dict[str, object]:
    """Without its address, which may hold a secret: only whose machine it is."""
    return {
        "name": webhook.name,
        "host": webhook.host,
        "events": webhook.events,
        "job": webhook.job_id,
        "enabled": webhook.enabled,
    }


def _delete_batch(webhook_id: UUID) -> int:
    with transaction.atomic(), bounded(statement_seconds=20):
        batch = WebhookDelivery.objects.filter(webhook_id=webhook_id).order_by("-id").values("id")[:_DELETE_BATCH]
        return WebhookDelivery.objects.filter(id__in=batch).delete()[0]


def _locked(webhook_id: UUID) -> Webhook:
    return Webhook.objects.select_for_update(no_key=True).get(id=webhook_id)


def _save(webhook: Webhook) -> None:
    try:
        with transaction.atomic():
            webhook.save()
    except IntegrityError:
        raise Conflict(f"There is a webhook called {webhook.name} already; choose another name.") from None


def _refuse_disabled(webhook: Webhook) -> None:
    if not webhook.enabled:
        raise Conflict(
            f"The webhook is disabled, and is sent nothing; enable it first. {webhook.disabled_reason}".rstrip()
        )


def _checked_name(name: str) -> str:
    if not is_readable_name(name):
        raise InvalidInput("name", UNREADABLE_NAME)
    return name


def _checked_events(events: Collection[str]) -> list[str]:
    if not events or not set(events) <= set(EVENTS):
        raise InvalidInput("events", f"Name at least one way in which executions end, of: {', '.join(EVENTS)}.")
    return sorted(set(events))


def _checked_job(owner_id: int, job_id: UUID | None) -> Job | None:
    if job_id is None:
        return None
    job = Job.objects.filter(id=job_id, owner_id=owner_id).first()
    if job is None:
        raise InvalidInput("job", "The webhook's owner has no such job.")
    return job


def _checked_url(url: str) -> Target:
    reach: Reach = settings.PUNCTUAL_WEBHOOK_REACH
    try:
        target = reach.parse_url(url)
    except ValueError as error:
        raise InvalidInput("url", str(error)) from None
    try:
        # A number in any spelling is refused here already; what a name stands for is looked at whenever it is used.
        found = socket.getaddrinfo(target.host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return target
    try:
        reach.check(str(entry[4][0]) for entry in found)
    except AddressRefused as error:
        raise InvalidInput("url", str(error)) from None
    return target


def _sealed(webhook: Webhook, secret: str) -> bytes:
    return _keyring().seal(secret, owner_id=webhook.owner_id, name=_bound_name(webhook))


def _bound_name(webhook: Webhook) -> str:
    """No secret of a job can have this name: a sealed value copied from one to the other does not open."""
    return f"webhook:{webhook.id}"


def _keyring() -> Keyring:
    ring = keyring()
    if ring is None:
        raise SecretsNotKept
    return ring
