"""What was placed is published again, with growing waits, until somebody takes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from jobs import conf
from jobs.errors import StaleAttempt
from jobs.messages import Publication, RunMessage, parse_run_message
from jobs.models import Execution, Worker
from jobs.protocol import Hold
from jobs.services import transitions
from jobs.services.publishing import probe_suspects, republish_unclaimed
from tests.factories import claim_on, make_execution, make_job, make_worker, place_on

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


def test_nothing_placed_sends_nothing() -> None:
    make_execution()
    outbox = Outbox()
    assert republish_unclaimed(outbox.send) == 0
    assert outbox.batches == 0


def test_what_nobody_took_is_published_again_and_that_is_remembered() -> None:
    outbox = Outbox()
    execution = make_execution(job=make_job(name="report"))
    hold = place_on(make_worker(), execution)
    assert republish_unclaimed(outbox.send) == 0, "who placed it has only just sent it"
    ago(execution, placed=3, published=3)
    assert republish_unclaimed(outbox.send) == 1
    assert outbox.sent == [Publication(execution.id, 1, hold.worker_id, "report")]
    assert outbox.sent[0].message == RunMessage(execution.id, 1)
    assert republish_unclaimed(outbox.send) == 0
    execution.refresh_from_db()
    assert execution.published_at is not None
    assert execution.placed_at is not None
    assert execution.published_at > execution.placed_at


def test_what_was_taken_ended_or_cancelled_is_not_published_again() -> None:
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
        (5.0, 2.5, True),  # then as long as it has been waiting until the last time: it doubles
        (9.0, 4.0, False),
        (9.0, 5.0, True),
        (25.0, 12.0, False),
        (25.0, 13.0, True),
    ],
)
def test_the_wait_before_it_is_sent_again_doubles(placed: float, published: float, again: bool) -> None:
    assert conf.REPUBLISH_SECONDS == 2
    execution = make_execution()
    place_on(make_worker(), execution)
    ago(execution, placed=placed, published=published)
    outbox = Outbox()
    assert republish_unclaimed(outbox.send) == int(again)
    assert [p.attempt for p in outbox.sent] == [1] * again, "the same attempt: the claim decides"


def test_what_failed_to_be_sent_is_sent_later() -> None:
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


def test_a_batch_is_bounded_and_the_oldest_go_first() -> None:
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


def test_a_new_placement_waits_for_its_own_time_under_its_new_number() -> None:
    execution = make_execution()
    worker = make_worker()
    place_on(worker, execution)
    ago(execution, placed=100, published=90)
    transitions.lose_held({worker.worker_id: None})
    place_on(worker, execution)
    outbox = Outbox()
    assert republish_unclaimed(outbox.send) == 0
    ago(execution, placed=3, published=3)
    republish_unclaimed(outbox.send)
    assert [p.attempt for p in outbox.sent] == [2]


def test_a_suspect_in_whose_queue_nothing_lies_is_given_something_to_take() -> None:
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
        transitions.claim(Hold(message.execution_id, message.attempt, suspect.worker_id, suspect.incarnation))


def test_without_suspects_nothing_is_sent() -> None:
    outbox = Outbox()
    make_worker()
    assert probe_suspects(outbox.send, lambda _: True) == outbox.batches == 0
