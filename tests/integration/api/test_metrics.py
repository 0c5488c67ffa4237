"""/metrics: for staff only, in a form that Prometheus reads, with what beats counted and what waits now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from rest_framework.test import APIClient

from jobs.services.counting import add_counts
from tests.factories import make_execution, make_schedule, make_user, make_worker, run_on
from tests.integration.api.rest_workers import worker_client


def read(client: APIClient) -> dict[tuple[str, str], float]:
    """Samples by name and the value of their only label."""
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.content
    families = text_string_to_metric_families(answer.content.decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, "".join(sample.labels.values())): sample.value for sample in samples}


def test_only_staff_reads_it(client: APIClient, staff: APIClient) -> None:
    assert Client().get("/metrics").status_code == 401
    assert client.get("/metrics").status_code == 403
    worker, _ = worker_client(make_user(is_staff=True))
    assert worker.get("/metrics").status_code == 403, "also of a member of staff"
    assert staff.get("/metrics").status_code == 200


def test_counts_of_all_beats_add_up(staff: APIClient) -> None:
    assert read(staff)["punctual_due_window_unannounced_total", ""] == 0
    add_counts({"due_window_unannounced": 2, "due_window_believed": 5})
    add_counts({"due_window_unannounced": 1, "due_window_believed": 0})
    shown = read(staff)
    assert shown["punctual_due_window_unannounced_total", ""] == 3
    assert shown["punctual_due_window_believed_total", ""] == 5


def test_what_waits_runs_and_is_overdue(staff: APIClient) -> None:
    worker = make_worker()
    make_execution()
    run_on(worker, make_execution())
    assert read(staff)["punctual_overdue_seconds", ""] == 0
    make_schedule(next_instant=datetime.now(UTC) - timedelta(seconds=90))
    shown = read(staff)
    assert shown["punctual_executions", "ready"] == 1
    assert shown["punctual_executions", "running"] == 1
    assert shown["punctual_executions", "backing_off"] == 0
    assert shown["punctual_workers", "online"] == 1
    assert 90 <= shown["punctual_overdue_seconds", ""] < 600
