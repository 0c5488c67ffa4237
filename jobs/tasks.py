"""The system tasks: housekeeping that celery beat sends and workers run, with results in django-celery-results."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from celery import shared_task
from django.db import transaction

from jobs import due_window
from jobs.services import backfilling, partitions
from jobs.services.database import bounded


@shared_task(name="jobs.create_partitions")
def create_partitions() -> list[str]:
    return partitions.create_partitions(today=datetime.now(UTC).date())


@shared_task(name="jobs.refill_due_window")
def refill_due_window() -> int:
    with transaction.atomic(), bounded(statement_seconds=10):
        return due_window.refill()


@shared_task(name="jobs.advance_backfills")
def advance_backfills() -> dict[str, int]:
    return asdict(backfilling.advance_backfills())
