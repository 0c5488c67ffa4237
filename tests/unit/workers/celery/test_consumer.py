"""Messages that the consumer cannot process."""

from __future__ import annotations

from typing import Any

import pytest
from celery.worker import consumer as stock
from django.db import OperationalError

from workers.celery.consumer import Consumer

RUN = [["0190d5a4-0000-7000-8000-000000000000", 1], {}, {}]


class Message:
    def __init__(self, payload: object) -> None:
        self.payload = payload
        self.acknowledged = False

    def reject_log_error(self, *_: object) -> None:
        self.acknowledged = True


def handled(monkeypatch: pytest.MonkeyPatch, payload: object, error: Exception) -> Message:
    def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(stock.Consumer, "create_task_handler", lambda *_: fail)
    message = Message(payload)
    object.__new__(Consumer).create_task_handler()(message)
    return message


def test_valid_message_during_outage_is_not_logged_as_invalid(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    message = handled(monkeypatch, RUN, OperationalError("connection refused"))
    assert message.acknowledged
    assert "Rejected a message" in caplog.text
    assert "invalid message" not in caplog.text


def test_invalid_message_is_dropped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert handled(monkeypatch, "nonsense", ValueError("never reached")).acknowledged
    assert "invalid message: TypeError" in caplog.text
