"""Sends due webhook deliveries at least once, with the same id for every try.

Invariant: nothing is sent inside a transaction, and a delivery is leased to one sender at a time. The response is
stored after sending; if the process dies in between, the delivery is sent again once its lease has expired.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import PunctualError
from jobs.models import DeliveryState, Webhook, WebhookDelivery
from jobs.notifications.webhooks.pacing import (
    GONE_STATUS,
    MAX_IN_FLIGHT,
    MAX_IN_FLIGHT_PER_HOST,
    MAX_TRIES,
    DueDelivery,
    InFlight,
    choose_deliveries,
    compute_retry_seconds,
)
from jobs.notifications.webhooks.payload import build_payload
from jobs.notifications.webhooks.resolving import Resolve, Resolver
from jobs.notifications.webhooks.sending import (
    MAX_ERROR_LENGTH,
    TOTAL_TIMEOUT_SECONDS,
    WebhookRequest,
    WebhookResponse,
    send_webhook,
    timed_out_response,
)
from jobs.notifications.webhooks.signing import sign_headers
from jobs.notifications.webhooks.subscriptions import open_signing_keys

logger = logging.getLogger(__name__)

STATEMENT_TIMEOUT_SECONDS = 5.0
# Read per step to choose from; the next step finds more.
CANDIDATE_DELIVERIES = MAX_IN_FLIGHT * 8
# A try counts as timed out this long after its deadline, well before its lease expires.
GRACE_SECONDS = 1.0
INTERNAL_ERROR = WebhookResponse(error="Internal error; the log of beat has the details.")
GONE_REASON = "The receiver answered 410 Gone."
FAILING_REASON = "Nothing could be delivered for three days."


@dataclass(frozen=True, slots=True)
class DeliverResult:
    settled: int
    sent: int


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """A try and its response. `refused`: it was not sent and must not be retried."""

    id: UUID
    webhook_id: UUID
    attempt: int
    tries_left: int
    response: WebhookResponse
    refused: bool = False

    @property
    def delivered(self) -> bool:
        return not self.response.error

    @property
    def gone(self) -> bool:
        return self.response.status_code == GONE_STATUS

    @property
    def state(self) -> DeliveryState:
        if self.delivered:
            return DeliveryState.DELIVERED
        is_final = self.refused or self.gone or not self.tries_left
        return DeliveryState.FAILED if is_final else DeliveryState.PENDING


@dataclass(frozen=True, slots=True)
class _DeliveryId:
    id: UUID


class Deliverer:
    """Sends deliveries in threads; `step` stores responses and starts due deliveries without waiting."""

    def __init__(
        self,
        *,
        on_answer: Callable[[], None] = lambda: None,
        resolve: Resolve | None = None,
        total_seconds: float = TOTAL_TIMEOUT_SECONDS,
    ) -> None:
        self._on_answer = on_answer
        self._resolve = resolve or Resolver()
        self._total_seconds = total_seconds
        self._busy = InFlight()
        # Deadlines by delivery and attempt; the thread that removes an entry records the result.
        self._awaited: dict[tuple[UUID, int], tuple[float, WebhookDelivery]] = {}
        self._lock = threading.Lock()
        self._answered: deque[DeliveryResult] = deque()

    @property
    def in_flight(self) -> int:
        with self._lock:
            return self._busy.total

    def step(self) -> DeliverResult:
        return DeliverResult(self.settle(), self._send_due())

    def settle(self) -> int:
        """Store the results so far; keep them for the next call if that fails."""
        self._time_out_overdue()
        batch = [self._answered[index] for index in range(len(self._answered))]
        if batch:
            store_results(batch)
            for _ in batch:
                self._answered.popleft()
        return len(batch)

    def _send_due(self) -> int:
        with self._lock:
            busy = InFlight(self._busy.hosts.copy(), self._busy.owners.copy())
        if busy.total >= MAX_IN_FLIGHT:
            return 0
        wanted = {
            "each": MAX_IN_FLIGHT_PER_HOST,
            "limit": CANDIDATE_DELIVERIES,
            "owners": list(busy.owners),
            "on_the_way": list(busy.owners.values()),
        }
        chosen = {
            due.id: due
            for due in choose_deliveries(
                sql.fetch("find_due_deliveries", wanted, DueDelivery, timeout_seconds=STATEMENT_TIMEOUT_SECONDS), busy
            )
        }
        if not chosen:
            return 0
        lease = {"ids": list(chosen), "lease_seconds": limits.WEBHOOK_LEASE_SECONDS}
        leased = [
            row.id
            for row in sql.fetch("lease_deliveries", lease, _DeliveryId, timeout_seconds=STATEMENT_TIMEOUT_SECONDS)
        ]
        rows = WebhookDelivery.objects.filter(id__in=leased).select_related("webhook", "execution__job")
        for delivery in rows:
            self._start(delivery, chosen[delivery.id])
        return len(leased)

    def _start(self, delivery: WebhookDelivery, due: DueDelivery) -> None:
        if not delivery.webhook.enabled:
            self._add_result(delivery, WebhookResponse(error="The webhook is disabled."), refused=True)
            return
        try:
            request = _build_request(delivery)
        except (PunctualError, ValueError) as error:
            self._add_result(delivery, WebhookResponse(error=str(error)[:MAX_ERROR_LENGTH]))
            return
        except Exception:
            # An unforeseen error must not stop the deliveries leased with this one.
            logger.exception("Webhook delivery %s could not be built", delivery.id)
            self._add_result(delivery, INTERNAL_ERROR)
            return
        deadline = time.monotonic() + self._total_seconds + GRACE_SECONDS
        with self._lock:
            self._busy.add(due)
            self._awaited[delivery.id, delivery.attempts] = deadline, delivery
        try:
            # A daemon thread, not a pool: beat exits without waiting for receivers.
            threading.Thread(target=self._send, args=(delivery, due, request), name="webhook", daemon=True).start()
        except RuntimeError:
            # No thread is available; the delivery is due again when its lease expires.
            logger.exception("Webhook delivery %s could not be sent", delivery.id)
            with self._lock:
                del self._awaited[delivery.id, delivery.attempts]
                self._busy.remove(due)

    def _send(self, delivery: WebhookDelivery, due: DueDelivery, request: WebhookRequest) -> None:
        response = INTERNAL_ERROR
        try:
            response = send_webhook(
                request,
                policy=settings.PUNCTUAL_WEBHOOK_REACH,
                resolve=self._resolve,
                total_seconds=self._total_seconds,
            )
        except Exception:
            logger.exception("Webhook delivery %s could not be sent", delivery.id)
        with self._lock:
            awaited = self._awaited.pop((delivery.id, delivery.attempts), None)
        if awaited is not None:
            self._add_result(delivery, response)
        # Only now, so that `in_flight == 0` implies that every result is recorded.
        with self._lock:
            self._busy.remove(due)
        self._on_answer()

    def _time_out_overdue(self) -> None:
        """End overdue tries, which count as in flight until their threads end."""
        now = time.monotonic()
        with self._lock:
            overdue = [key for key, (deadline, _) in self._awaited.items() if deadline < now]
            late = [self._awaited.pop(key)[1] for key in overdue]
        for delivery in late:
            self._add_result(delivery, timed_out_response(self._total_seconds))

    def _add_result(self, delivery: WebhookDelivery, response: WebhookResponse, *, refused: bool = False) -> None:
        self._answered.append(
            DeliveryResult(delivery.id, delivery.webhook_id, delivery.attempts, delivery.tries_left, response, refused)
        )


def store_results(batch: Sequence[DeliveryResult]) -> None:
    """Store any number of results in a constant number of statements."""
    rows = [
        {
            "id": str(each.id),
            "attempts": each.attempt,
            "state": each.state,
            "retry_seconds": compute_retry_seconds(MAX_TRIES - each.tries_left, random.random()),  # noqa: S311 - no secret
            "status_code": each.response.status_code,
            "error": each.response.error,
            "response": each.response.text,
        }
        for each in batch
    ]
    with transaction.atomic(), with_timeouts(statement_seconds=STATEMENT_TIMEOUT_SECONDS):
        stored = {row.id for row in sql.fetch("record_delivery_answers", {"rows": json.dumps(rows)}, _DeliveryId)}
        _update_webhooks([each for each in batch if each.id in stored and not each.refused])


def _update_webhooks(results: Sequence[DeliveryResult]) -> None:
    delivered = _webhook_ids(each for each in results if each.delivered)
    failed = _webhook_ids(each for each in results if not each.delivered) - delivered
    gone = _webhook_ids(each for each in results if each.gone)
    exhausted = _webhook_ids(each for each in results if each.state == DeliveryState.FAILED) - delivered
    if delivered:
        Webhook.objects.filter(id__in=delivered, failing_since__isnull=False).update(failing_since=None)
    if failed:
        Webhook.objects.filter(id__in=failed, failing_since__isnull=True).update(failing_since=Now())
    if gone:
        Webhook.objects.filter(id__in=gone, enabled=True).update(enabled=False, disabled_reason=GONE_REASON)
    if exhausted:
        long_ago = Now() - timedelta(seconds=limits.WEBHOOK_DISABLE_AFTER_SECONDS)
        failing = Webhook.objects.filter(id__in=exhausted, enabled=True, failing_since__lt=long_ago)
        failing.update(enabled=False, disabled_reason=FAILING_REASON)


def _webhook_ids(results: Iterable[DeliveryResult]) -> set[UUID]:
    return {each.webhook_id for each in results}


def _build_request(delivery: WebhookDelivery) -> WebhookRequest:
    body, now = build_payload(delivery), datetime.now(UTC)
    keys = open_signing_keys(delivery.webhook, at=now)
    signature = sign_headers(delivery_id=str(delivery.id), timestamp=int(now.timestamp()), body=body, keys=keys)
    headers = {"Content-Type": "application/json", "User-Agent": "Punctual-Webhooks", **signature}
    return WebhookRequest(settings.PUNCTUAL_WEBHOOK_REACH.parse_url(delivery.webhook.url), headers, body)
