"""Cancel, execute, next instants, logs and outputs."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.dispatch import placement
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import Chunk, RunReport
from jobs.execution import attempts
from jobs.logs.store import append_chunks
from jobs.models import Attempt, Execution, Schedule
from jobs.storage import s3
from tests.integration.api.conftest import API, execution_of
from tests.support.factories import hold_of, make_execution, make_job, make_output, make_worker

Submit = Callable[..., dict[str, Any]]


def run(execution: Execution) -> None:
    """Move the execution to `running`."""
    placement.place_ready_executions()
    attempts.claim_attempt(hold_of(execution))
    attempts.start_attempt(hold_of(execution), {"network": False})
    execution.refresh_from_db()


def finish(execution: Execution, exit_code: int = 0) -> None:
    attempts.finish_attempt(hold_of(execution), RunReport(Reason.EXIT, exit_code=exit_code))
    execution.refresh_from_db()


def test_cancelled_job_stops_firing_and_ends_waiting_executions(submit: Submit, client: APIClient) -> None:
    values = submit(schedules=[{"every_seconds": 60}])
    waiting = client.post(f"{API}/jobs/{values['id']}/execute").json()

    response = client.put(f"{API}/jobs/{values['id']}/cancel")

    assert response.status_code == 200
    assert response.json()["status"] == "cancelled"
    assert Schedule.objects.get(job_id=values["id"]).next_fire_at is None
    assert client.get(f"{API}/executions/{waiting['id']}").json()["status"] == "cancelled"
    assert client.get(f"{API}/jobs/{values['id']}/next").json() == {"results": []}
    assert client.put(f"{API}/jobs/{values['id']}/cancel").status_code == 200
    assert client.post(f"{API}/jobs/{values['id']}/execute").status_code == 409


def test_cancelling_job_resolves_dependents(submit: Submit, client: APIClient) -> None:
    upstream = submit()
    after_success = submit(dependencies=[{"job": upstream["id"]}])
    after_any = submit(dependencies=[{"job": upstream["id"], "condition": "completion"}])

    client.put(f"{API}/jobs/{upstream['id']}/cancel")

    assert execution_of(after_success["id"]).state == State.SKIPPED
    assert execution_of(after_any["id"]).state == State.READY


def test_cancel_marks_running_and_ends_waiting_execution(client: APIClient, owner: User) -> None:
    make_worker()
    running = make_execution(job=make_job(owner=owner))
    run(running)
    waiting = make_execution(job=make_job(owner=owner))

    marked = client.put(f"{API}/executions/{running.id}/cancel").json()
    ended = client.put(f"{API}/executions/{waiting.id}/cancel").json()

    assert (marked["status"], marked["ended_at"]) == ("running", None)
    assert marked["cancel_requested_at"] is not None
    assert (ended["status"], ended["reason"]) == ("cancelled", "cancelled")
    assert client.put(f"{API}/executions/{waiting.id}/cancel").status_code == 200
    (event,) = client.get(f"{API}/executions/{running.id}/events").json()["results"]
    assert (event["name"], event["detail"]) == ("execution.cancel_requested", {"by": owner.username})


def test_cancel_leaves_finished_execution_unchanged(client: APIClient, owner: User) -> None:
    make_worker()
    execution = make_execution(job=make_job(owner=owner))
    run(execution)
    finish(execution)

    response = client.put(f"{API}/executions/{execution.id}/cancel")

    assert response.status_code == 409
    assert "succeeded" in response.json()["detail"]


def test_execute_creates_execution(submit: Submit, client: APIClient) -> None:
    values = submit()
    response = client.post(f"{API}/jobs/{values['id']}/execute", {}, format="json")

    assert response.status_code == 201
    created = response.json()
    assert (created["status"], created["trigger"], created["job_id"]) == ("ready", "manual", values["id"])
    assert (created["job_name"], created["run_id"], created["worker_id"]) == ("job", created["id"], None)
    assert Execution.objects.filter(job_id=values["id"]).count() == 2
    refused = client.post(f"{API}/jobs/{values['id']}/execute", {"worker": "x"}, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "worker")


def test_execute_on_one_worker_only(submit: Submit, client: APIClient) -> None:
    make_worker()
    wanted = make_worker(slots=1)
    address = f"{API}/jobs/{submit(max_concurrency=None, schedules=[{'cron': '0 3 1 1 *'}])['id']}/execute"
    created = [client.post(address, {"worker_id": str(wanted.worker_id)}, format="json").json() for _ in range(2)]
    assert [each["pinned_worker_id"] for each in created] == [str(wanted.worker_id)] * 2
    placement.place_ready_executions()
    places = [Execution.objects.get(id=each["id"]).worker_id for each in created]
    assert places == [wanted.worker_id, None], "although another worker has capacity"


def test_unsuitable_worker_is_rejected(submit: Submit, client: APIClient) -> None:
    address = f"{API}/jobs/{submit()['id']}/execute"
    for worker_id in (uuid4(), make_worker(pool="elsewhere").worker_id):
        refused = client.post(address, {"worker_id": str(worker_id)}, format="json")
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "worker_id")
    assert Execution.objects.count() == 1


def test_next_merges_schedules_in_order_and_time_zone(submit: Submit, client: APIClient) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    at = start + timedelta(seconds=90)
    values = submit(
        schedules=[
            {"every_seconds": 60, "starts_at": start.isoformat()},
            {"at": at.isoformat(), "timezone": "Asia/Kolkata"},
        ]
    )

    results = client.get(f"{API}/jobs/{values['id']}/next?count=4").json()["results"]

    offsets = [0, 60, 90, 120]
    assert [r["at"] for r in results] == [
        (start + timedelta(seconds=s)).isoformat().replace("+00:00", "Z") for s in offsets
    ]
    assert results[2]["local"].endswith("+05:30")
    assert {r["note"] for r in results} == {None}
    assert client.get(f"{API}/jobs/{values['id']}/next?count=0").status_code == 400


def test_job_status_follows_its_executions(submit: Submit, client: APIClient) -> None:
    make_worker()
    values = submit()
    execution = execution_of(values["id"])
    seen = [values["status"]]
    run(execution)
    seen.append(client.get(f"{API}/jobs/{values['id']}").json()["status"])
    finish(execution, exit_code=3)
    seen.append(client.get(f"{API}/jobs/{values['id']}").json()["status"])

    assert seen == ["waiting", "running", "failed"]
    assert client.get(f"{API}/executions/{execution.id}").json()["exit_code"] == 3
    (attempt,) = client.get(f"{API}/executions/{execution.id}/attempts").json()["results"]
    assert (attempt["number"], attempt["exit_code"], attempt["reason"]) == (1, 3, "exit")


def test_logs_as_text_and_as_chunks(client: APIClient, owner: User) -> None:
    make_worker()
    execution = make_execution(job=make_job(owner=owner))
    address = f"{API}/executions/{execution.id}/logs"
    assert client.get(address).getvalue() == b""
    run(execution)
    now = datetime.now(UTC)
    written = [("stdout", b"<script>alert(1)</script>\n"), ("stderr", b"\xff\x00bad\n"), ("stdout", b"end\n")]
    append_chunks(hold_of(execution), [Chunk(i, stream, now, data) for i, (stream, data) in enumerate(written)])

    text = client.get(address)
    assert text.getvalue() == b"".join(data for _, data in written)
    assert text["Content-Type"] == "text/plain; charset=utf-8"
    assert text["X-Content-Type-Options"] == "nosniff"
    assert client.get(f"{address}?stream=stdout").getvalue() == written[0][1] + written[2][1]
    assert client.get(f"{address}?attempt=2").status_code == 404

    chunks = client.get(f"{address}?format=json&after=0").json()
    assert [(c["sequence"], c["stream"], c["text"]) for c in chunks["results"]] == [
        (1, "stderr", "�\x00bad\n"),
        (2, "stdout", "end\n"),
    ]
    assert chunks["next"] == 2
    nothing = {"results": [], "next": 2, "attempt": 1, "ended": False}
    assert client.get(f"{address}?format=json&after=2").json() == nothing
    assert client.get(f"{address}?after=x").json()["errors"][0]["field"] == "after"


def test_outputs_have_working_links(client: APIClient, owner: User, bucket: None) -> None:
    make_worker()
    execution = make_execution(job=make_job(owner=owner))
    run(execution)
    data = b"report"
    sha256 = hashlib.sha256(data).hexdigest()
    s3.put_output(s3.output_key(execution.id, 1, sha256), sha256, len(data), io.BytesIO(data))
    make_output(Attempt.objects.get(), name="out/a.html", size=len(data), sha256=sha256)

    (file,) = client.get(f"{API}/executions/{execution.id}/outputs").json()["results"]

    assert (file["name"], file["size"], file["sha256"]) == ("out/a.html", 6, sha256)
    answer = httpx.get(file["url"], timeout=10)
    assert answer.content == data
    assert answer.headers["Content-Disposition"] == 'attachment; filename="a.html"'
