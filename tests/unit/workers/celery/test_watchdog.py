"""Watchdog: a stalled consumer is recovered, a busy worker or a Redis outage is not a stall."""

from __future__ import annotations

import threading

import pytest

from workers.celery import watchdog
from workers.celery.watchdog import (
    RECONNECT_TIMEOUT_SECONDS,
    SHUTDOWN_TIMEOUT_SECONDS,
    STALLED_AFTER_SECONDS,
    QueueSnapshot,
    RecoveryAction,
    StallDetector,
    Watchdog,
)

DEADLINE = 10.0
WAITING = QueueSnapshot(b"message", has_free_slot=True)


def test_stalled_queue_escalates_recovery_steps() -> None:
    detector, now = StallDetector(), 100.0
    assert detector.next_action(WAITING, now) is None
    assert detector.next_action(WAITING, now + STALLED_AFTER_SECONDS - 0.1) is None
    for seconds, action in (
        (STALLED_AFTER_SECONDS, RecoveryAction.RESTART_CONSUMER),
        (RECONNECT_TIMEOUT_SECONDS, RecoveryAction.SHUT_DOWN),
        (SHUTDOWN_TIMEOUT_SECONDS, RecoveryAction.FORCE_EXIT),
    ):
        now += seconds
        assert detector.next_action(WAITING, now) is action
        assert detector.next_action(WAITING, now + seconds / 10) is None, "each step gets time to work"
    assert detector.next_action(WAITING, now + 1000) is None, "all steps were tried"


@pytest.mark.parametrize(
    "other",
    [
        QueueSnapshot(b"another", has_free_slot=True),
        QueueSnapshot(None, has_free_slot=True),
        QueueSnapshot(b"message", has_free_slot=False),
    ],
    ids=["it moves on", "nothing waits", "no slot is free"],
)
def test_progress_resets_the_stall_detector(other: QueueSnapshot) -> None:
    detector = StallDetector()
    detector.next_action(WAITING, 0)
    assert detector.next_action(WAITING, STALLED_AFTER_SECONDS) is RecoveryAction.RESTART_CONSUMER
    detector.next_action(other, STALLED_AFTER_SECONDS + 1)
    detector.next_action(WAITING, 100)
    assert detector.next_action(WAITING, 100 + STALLED_AFTER_SECONDS / 2) is None
    assert detector.next_action(WAITING, 101 + STALLED_AFTER_SECONDS) is RecoveryAction.RESTART_CONSUMER


def test_redis_outage_pauses_the_stall_detector() -> None:
    detector = StallDetector()
    detector.next_action(WAITING, 0)
    assert detector.next_action(WAITING, STALLED_AFTER_SECONDS) is RecoveryAction.RESTART_CONSUMER
    assert detector.next_action(None, 100) is None
    assert detector.next_action(WAITING, 101) is None
    assert detector.next_action(WAITING, 100 + RECONNECT_TIMEOUT_SECONDS) is RecoveryAction.SHUT_DOWN


def test_watchdog_survives_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "RECOVERY_STEPS", ((0.05, RecoveryAction.RESTART_CONSUMER),))
    checks, recovered = 0, threading.Event()

    def take_snapshot() -> QueueSnapshot:
        nonlocal checks
        checks += 1
        if checks < 3:
            raise OSError("a bad day")
        return WAITING

    watching = Watchdog(take_snapshot, {RecoveryAction.RESTART_CONSUMER: recovered.set})
    watching.start()
    assert recovered.wait(DEADLINE)
    watching.stop()
