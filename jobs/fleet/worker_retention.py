"""Retirement of workers that have been gone for long: lists leave them out, and their Redis queues are deleted.

Their rows stay, because executions and attempts reference them, and no index finds those: to delete a worker, Postgres
would scan all executions. No pass of beat reads retired workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef

from jobs.db.clock import database_now
from jobs.db.transactions import delete_in_batches
from jobs.db.wakeups import BestEffortRedis
from jobs.domain.messages import worker_queue
from jobs.domain.states import HELD
from jobs.models import Execution, Worker, WorkerStatus

GONE_STATUSES = (WorkerStatus.LOST, WorkerStatus.OFFLINE)
# A system task can wait for a busy Redis, unlike a request.
REDIS_TIMEOUT_SECONDS = 5.0


def retire_workers(*, retention: timedelta) -> int:
    """Retire workers that hold nothing and whose lease ended that long ago; return how many. Without Redis: none."""
    horizon = database_now() - retention
    held = Execution.objects.filter(worker=OuterRef("id"), phase=HELD)
    gone = Worker.objects.filter(status__in=GONE_STATUSES, lease_until__lt=horizon)

    def retire(limit: int) -> int:
        # A worker that registers meanwhile waits for the lock and declares its queue afterwards.
        locked = gone.filter(~Exists(held)).select_for_update(no_key=True, skip_locked=True, of=("self",))
        ids = list(locked.order_by("-id").values_list("id", flat=True)[:limit])
        if not ids or not _delete_queues(ids):
            return 0
        return Worker.objects.filter(id__in=ids).update(status=WorkerStatus.RETIRED, usage=None, details={})

    return delete_in_batches(retire)


def _delete_queues(worker_ids: Sequence[UUID]) -> bool:
    """Delete the workers' lists, and the bindings that Celery's transport stored with them; False without Redis."""
    names = [worker_queue(worker_id) for worker_id in worker_ids]
    keys = [key for name in names for key in (name, f"_kombu.binding.{name}")]
    redis = BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=REDIS_TIMEOUT_SECONDS)
    try:
        return redis.try_call(lambda client: client.delete(*keys)) is not None
    finally:
        redis.close()
