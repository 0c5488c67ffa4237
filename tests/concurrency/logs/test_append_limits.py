"""Concurrent requests of one attempt do not exceed its limits together."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest

from jobs.domain import limits
from jobs.domain.errors import InvalidInput
from jobs.domain.worker_protocol import Chunk
from jobs.fleet.remote_runs import announce_output
from jobs.logs.store import append_chunks
from jobs.models import Attempt, LogChunk
from tests.support.barriers import beside
from tests.support.factories import make_execution, make_worker, run_on

pytestmark = pytest.mark.django_db(transaction=True)


def test_concurrent_appends_do_not_exceed_the_log_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOG_BYTES", 10)
    monkeypatch.setattr(limits, "LOG_CHUNK_OVERHEAD_BYTES", 0)
    fence = run_on(make_worker(), make_execution())

    def write(sequence: int) -> None:
        append_chunks(fence, [Chunk(sequence, "stdout", datetime.now(UTC), b"x" * 6)])

    beside(partial(write, 0), partial(write, 1))
    assert LogChunk.objects.filter(data=b"x" * 6).count() == 1
    assert Attempt.objects.get().log_truncated


def test_concurrent_announcements_do_not_exceed_the_output_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OUTPUT_FILES", 1)
    fence = run_on(make_worker(), make_execution())

    def announce(digit: str) -> bool:
        try:
            announce_output(fence, sha256=digit * 64, size=1)
        except InvalidInput:
            return False
        return True

    assert not beside(partial(announce, "a"), partial(announce, "b"))
    assert Attempt.objects.get().output_files == 1
