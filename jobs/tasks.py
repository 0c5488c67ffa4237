"""The system tasks: housekeeping that celery beat sends and workers run, with results in django-celery-results."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db import transaction

from jobs import due_window
from jobs.services import (
    audit_trail,
    backfilling,
    log_archiving,
    log_indexing,
    log_retention,
    orphans,
    partitions,
    repeating,
    retention,
    tokens,
)
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


@shared_task(name="jobs.index_logs")
def index_logs() -> dict[str, object]:
    indexed = log_indexing.index_logs()
    return asdict(indexed) | {"reached_at": indexed.reached_at and indexed.reached_at.isoformat()}


@shared_task(name="jobs.prune_history")
def prune_history() -> dict[str, object]:
    pruned = retention.prune_history(retention=_retention())
    audited = timedelta(days=settings.PUNCTUAL_AUDIT_DAYS)
    changes = audit_trail.prune_entries(retention=audited)
    return asdict(pruned) | {
        "horizon": pruned.horizon.isoformat(),
        "answers": repeating.forget_answers(),
        "changes": asdict(changes),
        "tokens": tokens.forget_tokens(retention=audited),
    }


@shared_task(name="jobs.archive_logs")
def archive_logs() -> dict[str, object]:
    return asdict(log_archiving.archive_logs())


@shared_task(name="jobs.prune_logs")
def prune_logs() -> dict[str, object]:
    keep = timedelta(days=settings.PUNCTUAL_LOG_DAYS)
    return asdict(log_retention.prune_logs(keep=keep, max_bytes=settings.PUNCTUAL_LOG_MAX_MB * 1024**2))


@shared_task(name="jobs.sweep_orphans")
def sweep_orphans() -> dict[str, object]:
    return asdict(orphans.sweep_orphans(retention=_retention()))


def _retention() -> timedelta:
    return timedelta(days=settings.PUNCTUAL_RETENTION_DAYS)
