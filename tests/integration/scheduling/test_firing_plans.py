"""Firing is planned once per connection."""

from __future__ import annotations

import pytest
from django.db import connection

from jobs.scheduling.firing import fire_due_schedules
from scheduler_project.settings.database import PREPARE_THRESHOLD_USES
from tests.support.factories import make_schedule

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ["read_current_versions", "count_unfinished_of_jobs"])
def test_firing_is_not_planned_again_for_every_batch(name: str) -> None:
    for _ in range(50):
        make_schedule(expression="86400")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_job, jobs_jobversion, jobs_schedule, jobs_execution")
    for _ in range(3 * PREPARE_THRESHOLD_USES):
        make_schedule()
        assert fire_due_schedules().schedules
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE statement LIKE %s", [f"/* {name} */%"]
        )
        custom, generic = cursor.fetchone()
    assert generic > 0, f"planned {custom} times"
