"""Sends what is due to webhooks: at least once, each under an id of its own that stays the same for every try.

Invariant: nothing is sent inside a transaction, and two who deliver never have the same delivery at once unless the
lease of the first has ended. What an answer means is stored afterwards; whoever dies before that has it sent again.
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

from jobs import conf, sql
from jobs.errors import PunctualError
from jobs.models import DeliveryState, Webhook, WebhookDelivery
from jobs.services.database import bounded
from jobs.services.webhook_payload import payload_of
from jobs.services.webhooks import open_keys
from jobs.webhooks.pacing import GONE, MAX_TRIES, PLACES, PLACES_PER_HOST, Busy, Due, choose, retry_seconds
from jobs.webhooks.resolving import Resolve, Resolver
from jobs.webhooks.sending import (
    MAX_ERROR_LENGTH,
    TOTAL_SECONDS,
    Answer,
    Request,
    not_in_time,
    send,
)
from jobs.webhooks.signing import signed_headers

logger = logging.getLogger(__name__)

STATEMENT_SECONDS = 5.0
# What is looked at to find enough that may go: behind these there may be others, which the next look finds.
LOOK_AT = PLACES * 8
# After its time whoever sends speaks to nobody any more. Well within the lease.
GRACE_SECONDS = 1.0
OUR_FAULT = Answer(error="Something went wrong on our side; the log of beat says what.")
IS_GONE = "The receiver answered 410 Gone."
FAILED_FOR_DAYS = "Nothing could be delivered for three days."


@dataclass(frozen=True, slots=True)
class DeliverResult:
    settled: int
    sent: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A try, and what came of it. `refused`: it was not sent, and is not to be tried again."""

    id: UUID
    webhook_id: UUID
    attempt: int
    tries_left: int
    answer: Answer
    refused: bool = False

    @property
    def delivered(self) -> bool:
        return not self.answer.error

    @property
    def gone(self) -> bool:
        return self.answer.status_code == GONE

    @property
    def state(self) -> DeliveryState:
        if self.delivered:
            return DeliveryState.DELIVERED
        over = self.refused or self.gone or not self.tries_left
        return DeliveryState.FAILED if over else DeliveryState.PENDING


@dataclass(frozen=True, slots=True)
class _Row:
    id: UUID


class Deliverer:
    """`step` stores what was answered since the last and sends what is due; it waits for no receiver."""

    def __init__(
        self,
        *,
        on_answer: Callable[[], None] = lambda: None,
        resolve: Resolve | None = None,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._on_answer = on_answer
        self._resolve = resolve or Resolver()
        self._total_seconds = total_seconds
        self._busy = Busy()
        # Until when there must be an answer, by delivery and attempt: whoever removes an entry notes what came of it.
        self._awaited: dict[tuple[UUID, int], tuple[float, WebhookDelivery]] = {}
        self._lock = threading.Lock()
        self._answered: deque[Answered] = deque()

    @property
    def on_the_way(self) -> int:
        with self._lock:
            return self._busy.total

    def step(self) -> DeliverResult:
        return DeliverResult(self.settle(), self._send_due())

    def settle(self) -> int:
        """What cannot be stored now is kept for the next time."""
        self._note_overdue()
        batch = [self._answered[place] for place in range(len(self._answered))]
        if batch:
            settle_answers(batch)
            for _ in batch:
                self._answered.popleft()
        return len(batch)

    def _send_due(self) -> int:
        with self._lock:
            busy = Busy(self._busy.hosts.copy(), self._busy.owners.copy())
        if busy.total >= PLACES:
            return 0
        wanted = {
            "each": PLACES_PER_HOST,
            "limit": LOOK_AT,
            "owners": list(busy.owners),
            "on_the_way": list(busy.owners.values()),
        }
        chosen = {
            due.id: due for due in choose(sql.fetch("due_deliveries", wanted, Due, within=STATEMENT_SECONDS), busy)
        }
        if not chosen:
            return 0
        leased = {"ids": list(chosen), "lease_seconds": conf.WEBHOOK_LEASE_SECONDS}
        taken = [row.id for row in sql.fetch("take_deliveries", leased, _Row, within=STATEMENT_SECONDS)]
        rows = WebhookDelivery.objects.filter(id__in=taken).select_related("webhook", "execution__job")
        for delivery in rows:
            self._start(delivery, chosen[delivery.id])
        return len(taken)

    def _start(self, delivery: WebhookDelivery, due: Due) -> None:
        if not delivery.webhook.enabled:
            self._note(delivery, Answer(error="The webhook is disabled."), refused=True)
            return
        try:
            request = _request_of(delivery)
        except (PunctualError, ValueError) as error:
            self._note(delivery, Answer(error=str(error)[:MAX_ERROR_LENGTH]))
            return
        except Exception:
            # One that nobody thought of must not take those along that were taken with it.
            logger.exception("A webhook could not be made: %s", delivery.id)
            self._note(delivery, OUR_FAULT)
            return
        until = time.monotonic() + self._total_seconds + GRACE_SECONDS
        with self._lock:
            self._busy.take(due)
            self._awaited[delivery.id, delivery.attempts] = until, delivery
        try:
            # Not a pool's: beat ends without waiting for those who wait for somebody else.
            threading.Thread(target=self._send, args=(delivery, due, request), name="webhook", daemon=True).start()
        except RuntimeError:
            # No thread can be had: when its lease ends it is due again.
            logger.exception("A webhook could not be sent: %s", delivery.id)
            with self._lock:
                del self._awaited[delivery.id, delivery.attempts]
                self._busy.free(due)

    def _send(self, delivery: WebhookDelivery, due: Due, request: Request) -> None:
        answer = OUR_FAULT
        try:
            answer = send(
                request,
                reach=settings.PUNCTUAL_WEBHOOK_REACH,
                resolve=self._resolve,
                total_seconds=self._total_seconds,
            )
        except Exception:
            logger.exception("A webhook could not be sent: %s", delivery.id)
        with self._lock:
            awaited = self._awaited.pop((delivery.id, delivery.attempts), None)
        if awaited is not None:
            self._note(delivery, answer)
        # After that: who sees that nothing is on its way finds every answer.
        with self._lock:
            self._busy.free(due)
        self._on_answer()

    def _note_overdue(self) -> None:
        """Whatever keeps a thread, the try is over before its lease; the place is kept while its thread is."""
        now = time.monotonic()
        with self._lock:
            overdue = [key for key, (until, _) in self._awaited.items() if until < now]
            late = [self._awaited.pop(key)[1] for key in overdue]
        for delivery in late:
            self._note(delivery, not_in_time(self._total_seconds))

    def _note(self, delivery: WebhookDelivery, answer: Answer, *, refused: bool = False) -> None:
        self._answered.append(
            Answered(delivery.id, delivery.webhook_id, delivery.attempts, delivery.tries_left, answer, refused)
        )


def settle_answers(batch: Sequence[Answered]) -> None:
    """In as many statements for many as for one."""
    rows = [
        {
            "id": str(each.id),
            "attempts": each.attempt,
            "state": each.state,
            "retry_seconds": retry_seconds(MAX_TRIES - each.tries_left, random.random()),  # noqa: S311 - no secret
            "status_code": each.answer.status_code,
            "error": each.answer.error,
            "response": each.answer.text,
        }
        for each in batch
    ]
    with transaction.atomic(), bounded(statement_seconds=STATEMENT_SECONDS):
        settled = {row.id for row in sql.fetch("settle_deliveries", {"rows": json.dumps(rows)}, _Row)}
        _judge_webhooks([each for each in batch if each.id in settled and not each.refused])


def _judge_webhooks(settled: Sequence[Answered]) -> None:
    delivered = _webhooks(each for each in settled if each.delivered)
    failed = _webhooks(each for each in settled if not each.delivered) - delivered
    gone = _webhooks(each for each in settled if each.gone)
    exhausted = _webhooks(each for each in settled if each.state == DeliveryState.FAILED) - delivered
    if delivered:
        Webhook.objects.filter(id__in=delivered, failing_since__isnull=False).update(failing_since=None)
    if failed:
        Webhook.objects.filter(id__in=failed, failing_since__isnull=True).update(failing_since=Now())
    if gone:
        Webhook.objects.filter(id__in=gone, enabled=True).update(enabled=False, disabled_reason=IS_GONE)
    if exhausted:
        long_ago = Now() - timedelta(seconds=conf.WEBHOOK_FAILING_SECONDS)
        failing = Webhook.objects.filter(id__in=exhausted, enabled=True, failing_since__lt=long_ago)
        failing.update(enabled=False, disabled_reason=FAILED_FOR_DAYS)


def _webhooks(answered: Iterable[Answered]) -> set[UUID]:
    return {each.webhook_id for each in answered}


def _request_of(delivery: WebhookDelivery) -> Request:
    webhook, body, now = delivery.webhook, payload_of(delivery), datetime.now(UTC)
    keys = open_keys(webhook, at=now)
    signed = signed_headers(delivery_id=str(delivery.id), timestamp=int(now.timestamp()), body=body, keys=keys)
    headers = {"Content-Type": "application/json", "User-Agent": "Punctual-Webhooks", **signed}
    return Request(settings.PUNCTUAL_WEBHOOK_REACH.parse_url(webhook.url), headers, body)
