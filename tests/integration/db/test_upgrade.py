"""An upgrade from the first release keeps jobs, history and running work, and the work goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.db.test_migrations import empty_database  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parents[3]


def test_upgrade_keeps_data_and_running_work(empty_database: str) -> None:  # noqa: F811 - the fixture
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.db.upgrade"],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": empty_database, "DJANGO_SETTINGS_MODULE": "scheduler_project.settings"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
