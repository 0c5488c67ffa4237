"""Logs of web, beat and a worker during a Redis outage: one line at its start, one at its end, few between."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.models import Execution
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.postgres_proxy import PostgresProxy
from tests.support.processes import PROCESSES, started
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

# Beat sends some system tasks every five seconds.
AWAY_SECONDS, OTHER_LINES = 12.0, 10


def test_redis_outage_logs_one_line_at_its_start_and_one_at_its_end(
    engines: Engines, bucket: None, tmp_path: Path
) -> None:
    def succeeded() -> int:
        return Execution.objects.filter(state="succeeded").count()

    with PostgresProxy() as proxy, started(proxy, tmp_path) as processes:
        assert processes.submit("every second", schedules=[{"every_seconds": 1}])
        wait_for(lambda: succeeded() >= 2, "it runs")
        before = {name: processes.log(name).count("\n") for name in PROCESSES}
        engines.valkey.kill()
        try:
            began = time.monotonic()
            while time.monotonic() - began < AWAY_SECONDS:
                assert processes.submit("taken"), "web needs no Redis"
        finally:
            engines.valkey.start()
        already = succeeded()
        wait_for(lambda: succeeded() >= already + 3, "jobs run again", seconds=60)
        for name in PROCESSES:
            wait_for(lambda name=name: "Redis is back" in processes.log(name), f"{name} logs the recovery", seconds=60)  # type: ignore[misc]
            during = processes.log(name).splitlines()[before[name] :]
            assert sum("Redis is away" in line for line in during) == 1, during
            assert not any("Traceback" in line for line in during), during
            noise = [line for line in during if " WARNING " in line or " ERROR " in line]
            assert len(noise) <= OTHER_LINES, noise
