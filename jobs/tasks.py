"""The system tasks: housekeeping that celery beat sends and workers run, with results in django-celery-results."""

from __future__ import annotations

from datetime import UTC, datetime

from celery import shared_task

from jobs.services import partitions


@shared_task(name="jobs.create_partitions")
def create_partitions() -> list[str]:
    return partitions.create_partitions(today=datetime.now(UTC).date())
