"""Beats that are killed with SIGKILL wherever they are: afterwards the auditor can explain every instant.

For minutes instead of seconds: `python -m tools.killing --minutes 5`.
"""

from __future__ import annotations

import secrets

import pytest

from scheduler_project.localstack.engines.standalone import Engines
from tools.killing.directing import run_killing

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 45.0


@pytest.mark.timeout(420)
def test_verify_explains_every_instant_after_beats_were_killed(engines: Engines) -> None:
    report = run_killing(seconds=SECONDS, seed=secrets.randbelow(2**32))
    print(report.as_text())
    assert report.clean, report.as_text()
    assert not report.shortfall(), report.as_text()
