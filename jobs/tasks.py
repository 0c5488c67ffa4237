"""System tasks: periodic housekeeping, sent by Celery beat, with results in django-celery-results.

Their intervals are rows of django-celery-beat, seeded by `migrations/0003_seed.py` and edited in the admin.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db import transaction

from jobs.access import idempotency, tokens
from jobs.audit import log
from jobs.db import due_window, partitions
from jobs.db.transactions import with_timeouts
from jobs.fleet.worker_retention import retire_workers
from jobs.housekeeping import history_retention
from jobs.logs import archiving, indexing, retention
from jobs.scheduling import backfill
from jobs.storage import orphans, quota


@shared_task(name="jobs.create_partitions")
def create_partitions() -> list[str]:
    return partitions.create_partitions(today=datetime.now(UTC).date())


@shared_task(name="jobs.refill_due_window")
def refill_due_window() -> int:
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        return due_window.refill_window()


@shared_task(name="jobs.advance_backfills")
def advance_backfills() -> dict[str, int]:
    return asdict(backfill.advance_backfills())


@shared_task(name="jobs.index_logs")
def index_logs() -> dict[str, object]:
    indexed = indexing.index_logs()
    return asdict(indexed) | {"reached_at": indexed.reached_at and indexed.reached_at.isoformat()}


@shared_task(name="jobs.prune_history")
def prune_history() -> dict[str, object]:
    pruned = history_retention.prune_history(retention=_history_retention(), pause=history_retention.ROUND_PAUSE)
    audit_retention = timedelta(days=settings.PUNCTUAL_AUDIT_DAYS)
    changes = log.prune_entries(retention=audit_retention)
    return asdict(pruned) | {
        "horizon": pruned.horizon.isoformat(),
        "answers": idempotency.prune_responses(),
        "changes": asdict(changes),
        "tokens": tokens.prune_tokens(retention=audit_retention),
        "workers": retire_workers(retention=timedelta(days=settings.PUNCTUAL_WORKER_RETENTION_DAYS)),
    }


@shared_task(name="jobs.check_storage")
def check_storage() -> dict[str, object]:
    return {"full_owners": quota.check_full_owners()}


@shared_task(name="jobs.archive_logs")
def archive_logs() -> dict[str, object]:
    return asdict(archiving.archive_logs())


@shared_task(name="jobs.prune_logs")
def prune_logs() -> dict[str, object]:
    keep = timedelta(days=settings.PUNCTUAL_LOG_DAYS)
    return asdict(retention.prune_logs(keep=keep, max_bytes=settings.PUNCTUAL_LOG_MAX_MB * 1024**2))


@shared_task(name="jobs.sweep_orphans")
def sweep_orphans() -> dict[str, object]:
    return asdict(orphans.sweep_orphans(retention=_history_retention()))


def _history_retention() -> timedelta:
    return timedelta(days=settings.PUNCTUAL_RETENTION_DAYS)
