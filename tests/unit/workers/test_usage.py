"""A worker that cannot say how busy it is renews its lease all the same."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from jobs.protocol import Registration
from workers import usage
from workers.held_runs import HeldRuns


def test_without_the_kernels_word_it_is_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(usage, "MEMINFO", tmp_path / "missing")
    monkeypatch.setattr("os.getloadavg", refuse)
    measured = usage.measure_usage(HeldRuns(Registration(uuid4(), 1)))
    assert (measured.runs, measured.load, measured.memory_available_mb) == (0, 0.0, 0)
