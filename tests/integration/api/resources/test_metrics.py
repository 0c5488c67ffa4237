"""/metrics: staff only, in Prometheus format, with counters and gauges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from rest_framework.test import APIClient

from jobs.telemetry.metrics import increment_counters
from tests.support.factories import make_execution, make_schedule, make_user, make_worker, run_on
from tests.support.rest_workers import worker_client


def read(client: APIClient) -> dict[tuple[str, str], float]:
    """Return samples by name and label value."""
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.content
    families = text_string_to_metric_families(answer.content.decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, "".join(sample.labels.values())): sample.value for sample in samples}


def test_only_staff_reads_metrics(client: APIClient, staff: APIClient) -> None:
    assert Client().get("/metrics").status_code == 401
    assert client.get("/metrics").status_code == 403
    worker, _ = worker_client(make_user(is_staff=True))
    assert worker.get("/metrics").status_code == 403, "also for staff"
    assert staff.get("/metrics").status_code == 200


def test_counters_of_all_beats_are_summed(staff: APIClient) -> None:
    assert read(staff)["punctual_due_window_unannounced_total", ""] == 0
    increment_counters({"due_window_unannounced": 2, "due_window_hits": 5})
    increment_counters({"due_window_unannounced": 1, "due_window_hits": 0})
    data = read(staff)
    assert data["punctual_due_window_unannounced_total", ""] == 3
    assert data["punctual_due_window_hits_total", ""] == 5


def test_gauges_of_executions_workers_and_overdue(staff: APIClient) -> None:
    worker = make_worker()
    make_execution()
    run_on(worker, make_execution())
    assert read(staff)["punctual_overdue_seconds", ""] == 0
    make_schedule(next_instant=datetime.now(UTC) - timedelta(seconds=90))
    data = read(staff)
    assert data["punctual_executions", "ready"] == 1
    assert data["punctual_executions", "running"] == 1
    assert data["punctual_executions", "backing_off"] == 0
    assert data["punctual_workers", "online"] == 1
    assert 90 <= data["punctual_overdue_seconds", ""] < 600
