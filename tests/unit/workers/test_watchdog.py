"""The watchdog is patient with a busy worker and an absent Redis, and insistent with a silent consumer."""

from __future__ import annotations

import threading

import pytest

from workers import watchdog
from workers.watchdog import LEFT_SECONDS, MENDED_SECONDS, SILENT_SECONDS, Patience, Remedy, Sight, Watchdog

DEADLINE = 10.0
WAITING = Sight(b"message", free=True)


def test_what_lies_still_is_tried_by_gentler_means_first() -> None:
    patience, now = Patience(), 100.0
    assert patience.judge(WAITING, now) is None
    assert patience.judge(WAITING, now + SILENT_SECONDS - 0.1) is None
    for seconds, remedy in (
        (SILENT_SECONDS, Remedy.CONSUME_AGAIN),
        (MENDED_SECONDS, Remedy.LEAVE),
        (LEFT_SECONDS, Remedy.ABANDON),
    ):
        now += seconds
        assert patience.judge(WAITING, now) is remedy
        assert patience.judge(WAITING, now + seconds / 10) is None, "it is given time"
    assert patience.judge(WAITING, now + 1000) is None, "there is nothing more to try"


@pytest.mark.parametrize(
    "other",
    [Sight(b"another", free=True), Sight(None, free=True), Sight(b"message", free=False)],
    ids=["it moves on", "nothing waits", "no slot is free"],
)
def test_a_sign_of_life_begins_anew(other: Sight) -> None:
    patience = Patience()
    patience.judge(WAITING, 0)
    assert patience.judge(WAITING, SILENT_SECONDS) is Remedy.CONSUME_AGAIN
    patience.judge(other, SILENT_SECONDS + 1)
    patience.judge(WAITING, 100)
    assert patience.judge(WAITING, 100 + SILENT_SECONDS / 2) is None
    assert patience.judge(WAITING, 101 + SILENT_SECONDS) is Remedy.CONSUME_AGAIN


def test_while_redis_is_away_nobody_is_blamed_and_nothing_forgotten() -> None:
    patience = Patience()
    patience.judge(WAITING, 0)
    assert patience.judge(WAITING, SILENT_SECONDS) is Remedy.CONSUME_AGAIN
    assert patience.judge(None, 100) is None
    assert patience.judge(WAITING, 101) is None
    assert patience.judge(WAITING, 100 + MENDED_SECONDS) is Remedy.LEAVE


def test_it_looks_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "STEPS", ((0.05, Remedy.CONSUME_AGAIN),))
    looks, mended = 0, threading.Event()

    def look() -> Sight:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise OSError("a bad day")
        return WAITING

    watching = Watchdog(look, {Remedy.CONSUME_AGAIN: mended.set})
    watching.start()
    assert mended.wait(DEADLINE)
    watching.stop()
