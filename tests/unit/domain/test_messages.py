"""Run messages: two values, and strict parsing of untrusted input."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.messages import RunMessage, parse_run_message, worker_queue

ID = UUID("0190a5c2-0000-7000-8000-000000000001")


@given(st.uuids(), st.integers(1, 2**31 - 1))
def test_message_round_trip(execution_id: UUID, attempt: int) -> None:
    message = RunMessage(execution_id, attempt)
    assert parse_run_message(*message.args) == message


@pytest.mark.parametrize(
    ("execution_id", "attempt"),
    [
        (None, None),
        (None, 1),
        (str(ID), None),
        (str(ID), "1"),
        (str(ID), 1.0),
        (str(ID), True),
        (str(ID), 0),
        (str(ID), -1),
        (str(ID), 2**31),
        ("", 1),
        ("not-an-id", 1),
        (str(ID) + "0", 1),
        (ID, 1),
        ([str(ID)], 1),
        ({"id": str(ID)}, 1),
        (7, 1),
        (ID.bytes, 1),
        ("\0" * 32, 1),
    ],
)
def test_malformed_message_is_refused(execution_id: object, attempt: object) -> None:
    assert parse_run_message(execution_id, attempt) is None


@given(st.text() | st.binary() | st.none() | st.integers(), st.text() | st.floats() | st.none() | st.integers())
def test_parser_never_raises(execution_id: object, attempt: object) -> None:
    parse_run_message(execution_id, attempt)


def test_each_attempt_has_its_own_task_id() -> None:
    assert RunMessage(ID, 1).task_id == f"{ID}-1"
    assert RunMessage(ID, 1).task_id != RunMessage(ID, 2).task_id


def test_each_worker_has_its_own_queue() -> None:
    assert worker_queue(ID) == f"worker.{ID}"
    assert worker_queue(uuid4()) != worker_queue(uuid4())
