"""Two requests of one attempt at once do not both take what is left of its bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest

from jobs import conf
from jobs.errors import InvalidInput
from jobs.models import Attempt, LogChunk
from jobs.protocol import Chunk
from jobs.services.logs import append_chunks
from jobs.services.worker_runs import announce_output
from tests.concurrency.connections import beside
from tests.factories import make_execution, make_worker, run_on

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_bytes_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_LOG_BYTES", 10)
    hold = run_on(make_worker(), make_execution())

    def write(sequence: int) -> None:
        append_chunks(hold, [Chunk(sequence, "stdout", datetime.now(UTC), b"x" * 6)], capped=False)

    beside(partial(write, 0), partial(write, 1))
    assert LogChunk.objects.count() == 1
    assert Attempt.objects.get().log_truncated


def test_the_number_of_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_OUTPUT_FILES", 1)
    hold = run_on(make_worker(), make_execution())

    def announce(digit: str) -> bool:
        try:
            announce_output(hold, sha256=digit * 64, size=1)
        except InvalidInput:
            return False
        return True

    assert not beside(partial(announce, "a"), partial(announce, "b"))
    assert Attempt.objects.get().output_files == 1
