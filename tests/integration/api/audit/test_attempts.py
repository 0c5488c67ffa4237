"""/audit/attempts: own jobs for users, all jobs for staff, in the documented form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.api.resources.audit_attempts import AttemptAuditOutput
from jobs.models import Execution, JobVersion
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_worker, run_on

ADDRESS = f"{API}/audit/attempts"
SINCE = {"from": (datetime.now(UTC) - timedelta(hours=1)).isoformat()}


@pytest.fixture
def over_limit(owner: User) -> Execution:
    """Create two active attempts of a job that allows one."""
    job, worker = make_job(owner=owner, max_concurrency=2), make_worker(slots=4)
    executions = [make_execution(job=job) for _ in range(2)]
    for execution in executions:
        run_on(worker, execution)
    JobVersion.objects.update(max_concurrency=1)
    return executions[1]


def test_violated_limit_is_reported_with_execution(client: APIClient, over_limit: Execution) -> None:
    data = client.get(ADDRESS, SINCE).json()
    assert set(data) == set(AttemptAuditOutput().fields)
    assert (data["clean"], data["attempts"], data["over_job_limit"]) == (False, 2, 1)
    (difference,) = data["differences"]
    assert (difference["what"], difference["execution_id"]) == ("over_job_limit", str(over_limit.id))
    assert (difference["active"], difference["limit"]) == (2, 1)


def test_owners_audit_own_jobs_and_staff_all(
    client: APIClient, stranger: APIClient, staff: APIClient, over_limit: Execution
) -> None:
    assert [c.get(ADDRESS, SINCE).json()["attempts"] for c in (client, stranger, staff)] == [2, 0, 2]
    one = SINCE | {"job_id": str(over_limit.job_id)}
    assert [c.get(ADDRESS, one).status_code for c in (client, stranger, staff)] == [200, 404, 200]
    assert staff.get(ADDRESS, SINCE | {"job_id": str(uuid4())}).status_code == 404


def test_timed_out_audit_names_the_remedy(
    client: APIClient, over_limit: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.api.resources.audit_firings.AUDIT_TIMEOUT_SECONDS", 1e-9)
    answer = client.get(ADDRESS, SINCE)
    assert answer.status_code == 400
    assert "manage.py audit_attempts" in str(answer.json()["errors"])
