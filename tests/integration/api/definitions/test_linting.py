"""Warnings of POST /jobs about daylight saving and herds, and descriptions of schedules."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.db.ttl_cache import TTLCache
from jobs.models import Schedule
from jobs.scheduling import linting
from tests.integration.api.conftest import API
from tests.support.factories import make_job, make_schedule

Submit = Callable[..., dict[str, Any]]
TOMORROW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"cron": "0 3 * * *", "timezone": "Europe/Paris"}, "Europe/Paris"),
        ({"every_seconds": 90}, "Every 1 minute and 30 seconds"),
        ({"delay_seconds": 60}, "after each run has ended"),
        ({"solar": "sunset 48.85,2.35"}, "sunset"),
        ({"cron": "@daily", "excluded_dates": ["2090-01-01"]}, "except on 1 excluded date"),
    ],
)
def test_schedule_is_described_in_words(submit: Submit, written: dict[str, Any], words: str) -> None:
    (data,) = submit(schedules=[written])["schedules"]
    assert words.lower() in data["in_words"].lower()


def test_quarantined_schedule_is_shown(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=[{"cron": "@daily"}])
    Schedule.objects.update(
        quarantined_at=datetime.now(UTC), expression="no cron", next_instant=None, next_fire_at=None
    )
    (data,) = client.get(f"{API}/jobs/{job['id']}").json()["schedules"]
    assert data["in_words"] is None


def test_ordinary_schedule_has_no_warnings(submit: Submit) -> None:
    assert submit(schedules=[{"cron": "0 12 * * *"}])["warnings"] == []
    assert submit()["warnings"] == []


def test_nonexistent_local_time_is_warned_of(submit: Submit) -> None:
    schedule = {"cron": "30 2 * * *", "timezone": "America/New_York", "starts_at": "2027-03-01T00:00:00Z"}
    warnings = submit(schedules=[schedule, schedule])["warnings"]
    assert sum("02:30 does not exist on 2027-03-14" in warning for warning in warnings) == 1


def test_many_schedules_at_one_instant_are_warned_of(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linting, "HERD_SCHEDULES", 5)
    job = make_job()
    for n in range(5):
        make_schedule(job=job, next_instant=TOMORROW + n * timedelta(milliseconds=190))
    make_schedule(job=job, next_instant=TOMORROW + timedelta(seconds=1))
    make_schedule(job=job, next_instant=TOMORROW - timedelta(milliseconds=1))

    (warning,) = submit(schedules=[{"at": TOMORROW.isoformat()}])["warnings"]
    assert "6 schedules" in warning
    assert f"{TOMORROW:%H:%M:%S}" in warning
    assert submit(schedules=[{"at": (TOMORROW + timedelta(seconds=5)).isoformat()}])["warnings"] == []


def test_herd_count_is_bounded(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linting, "HERD_SCHEDULES", 2)
    monkeypatch.setattr(linting, "MAX_COUNTED_SCHEDULES", 3)
    job = make_job()
    for _ in range(6):
        make_schedule(job=job, next_instant=TOMORROW)
    (warning,) = submit(schedules=[{"at": TOMORROW.isoformat()}])["warnings"]
    assert "more than 3 schedules" in warning


def test_large_herd_is_counted_once_a_second(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linting, "HERD_SCHEDULES", 2)
    monkeypatch.setattr(linting, "EXACTLY_COUNTED_SCHEDULES", 5)
    monkeypatch.setattr(linting, "LARGE_HERD_TTL_SECONDS", 3600)
    monkeypatch.setattr(linting, "_large_herds", TTLCache[datetime, int]())
    warnings = [submit(schedules=[{"at": TOMORROW.isoformat()}])["warnings"] for _ in range(7)]
    counts = [re.search(r"one of (\d+) schedules", found[0])[1] if found else None for found in warnings]  # type: ignore[index]
    assert counts == [None, None, "3", "4", "5", "5", "5"]
