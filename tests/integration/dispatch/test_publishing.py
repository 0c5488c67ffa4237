"""Republication of placed executions, with growing waits, until a worker claims them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from jobs.dispatch.publishing import probe_suspects, republish_unclaimed
from jobs.domain import limits
from jobs.domain.errors import StaleAttempt
from jobs.domain.messages import Publication, RunMessage, parse_run_message
from jobs.domain.worker_protocol import AttemptFence
from jobs.execution import transitions
from jobs.models import Execution, Worker
from tests.support.factories import claim_on, make_execution, make_job, make_worker, place_on

pytestmark = pytest.mark.django_db


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Publication] = []
        self.batches = 0

    def send(self, batch: Sequence[Publication]) -> None:
        self.batches += 1
        self.sent.extend(batch)


def ago(execution: Execution, *, placed: float, published: float) -> None:
    now = datetime.now(UTC)
    Execution.objects.filter(id=execution.id).update(
        placed_at=now - timedelta(seconds=placed), published_at=now - timedelta(seconds=published)
    )


def test_without_placements_nothing_is_sent() -> None:
    make_execution()
    outbox = Outbox()
    assert republish_unclaimed(outbox.send) == 0
    assert outbox.batches == 0


def test_unclaimed_execution_is_republished_and_marked() -> None:
    outbox = Outbox()
    execution = make_execution(job=make_job(name="report"))
    hold = place_on(make_worker(), execution)
    assert republish_unclaimed(outbox.send) == 0, "the beat that placed it has only just sent it"
    ago(execution, placed=3, published=3)
    assert republish_unclaimed(outbox.send) == 1
    assert outbox.sent == [Publication(execution.id, 1, hold.worker_id, "report")]
    assert outbox.sent[0].message == RunMessage(execution.id, 1)
    assert republish_unclaimed(outbox.send) == 0
    execution.refresh_from_db()
    assert execution.published_at is not None
    assert execution.placed_at is not None
    assert execution.published_at > execution.placed_at


def test_claimed_finished_or_cancelled_execution_is_not_republished() -> None:
    worker = make_worker()
    for execution in (make_execution(), make_execution()):
        claim_on(worker, execution)
    cancelled = make_execution()
    place_on(worker, cancelled)
    transitions.cancel([cancelled.id], by="test")
    for execution in Execution.objects.all():
        ago(execution, placed=100, published=90)
    assert republish_unclaimed(Outbox().send) == 0


@pytest.mark.parametrize(
    ("placed", "published", "again"),
    [
        (1.0, 1.0, False),
        (2.5, 2.5, True),  # the first wait is REPUBLISH_SECONDS
        (5.0, 2.5, True),  # then as long as it had waited at the last time: the wait doubles
        (9.0, 4.0, False),
        (9.0, 5.0, True),
        (25.0, 12.0, False),
        (25.0, 13.0, True),
    ],
)
def test_wait_before_republication_doubles(placed: float, published: float, again: bool) -> None:
    assert limits.REPUBLISH_INITIAL_BACKOFF_SECONDS == 2
    execution = make_execution()
    place_on(make_worker(), execution)
    ago(execution, placed=placed, published=published)
    outbox = Outbox()
    assert republish_unclaimed(outbox.send) == int(again)
    assert [p.attempt for p in outbox.sent] == [1] * again, "the same attempt: the claim decides"


def test_failed_send_is_repeated_later() -> None:
    execution = make_execution()
    place_on(make_worker(), execution)
    ago(execution, placed=3, published=3)

    def fail(_batch: Sequence[Publication]) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        republish_unclaimed(fail)
    outbox = Outbox()
    assert republish_unclaimed(outbox.send) == 0, "not at once: Redis has just failed"
    ago(execution, placed=6, published=3)
    assert republish_unclaimed(outbox.send) == 1


def test_batch_is_bounded_oldest_first() -> None:
    worker = make_worker()
    executions = [make_execution() for _ in range(3)]
    for number, execution in enumerate(executions):
        place_on(worker, execution)
        ago(execution, placed=10 - number, published=10 - number)
    first, second = Outbox(), Outbox()
    assert republish_unclaimed(first.send, limit=2) == 2
    assert republish_unclaimed(second.send, limit=2) == 1
    assert {p.execution_id for p in first.sent} == {e.id for e in executions[:2]}
    assert [p.execution_id for p in second.sent] == [executions[2].id]


def test_new_placement_has_its_own_wait_and_attempt_number() -> None:
    execution = make_execution()
    worker = make_worker()
    place_on(worker, execution)
    ago(execution, placed=100, published=90)
    transitions.lose_executions({worker.worker_id: None})
    place_on(worker, execution)
    outbox = Outbox()
    assert republish_unclaimed(outbox.send) == 0
    ago(execution, placed=3, published=3)
    republish_unclaimed(outbox.send)
    assert [p.attempt for p in outbox.sent] == [2]


def test_suspect_with_an_empty_queue_gets_a_probe() -> None:
    outbox = Outbox()
    make_worker(name="trusted")
    suspect, busy, gone = make_worker(), make_worker(), make_worker()
    Worker.objects.exclude(name="trusted").update(status="suspect")
    Worker.objects.filter(id=gone.worker_id).update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    assert probe_suspects(outbox.send, lambda worker_id: worker_id != busy.worker_id) == 1
    (sent,) = outbox.sent
    assert sent.worker_id == suspect.worker_id
    message = parse_run_message(*sent.message.args)
    assert message is not None
    with pytest.raises(StaleAttempt):
        transitions.claim(AttemptFence(message.execution_id, message.attempt, suspect.worker_id, suspect.incarnation))


def test_without_suspects_no_probe_is_sent() -> None:
    outbox = Outbox()
    make_worker()
    assert probe_suspects(outbox.send, lambda _: True) == outbox.batches == 0
