"""After an upgrade from the first release, jobs, history and running work are kept, and the work continues."""

from __future__ import annotations

from tests.support.empty_database import EmptyDatabase


def test_upgrade_keeps_data_and_running_work(empty_database: EmptyDatabase) -> None:
    done = empty_database.run_python("-m", "tests.integration.db.upgrade")
    assert done.returncode == 0, done.stderr
