"""Usage: unreadable values do not fail a renewal."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from jobs.domain.worker_protocol import Registration
from workers.lease import usage
from workers.lease.held_runs import HeldRuns


def test_unreadable_usage_is_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(usage, "MEMINFO", tmp_path / "missing")
    monkeypatch.setattr("os.getloadavg", refuse)
    measured = usage.measure_usage(HeldRuns(Registration(uuid4(), 1)))
    assert (measured.runs, measured.load, measured.memory_available_mb) == (0, 0.0, 0)
