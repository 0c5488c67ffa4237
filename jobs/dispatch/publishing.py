"""Republication of placed executions that no worker claimed, and probes of suspect workers.

A message is a hint; the claim decides. The beat that places an execution sends the first message after the commit; any
beat sends it again while no worker claims it. So neither a lost message nor a beat that died between commit and
publication loses an execution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.messages import Publication, Transport, build_probe
from jobs.models import Worker, WorkerStatus


def republish_unclaimed(
    send: Callable[[Sequence[Publication]], None], *, limit: int = limits.PUBLISH_BATCH_MESSAGES
) -> int:
    """Mark one batch in its own transaction, then send it; what fails to be sent is marked again later."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        batch = sql.fetch(
            "mark_for_republishing",
            {"limit": limit, "republish_seconds": limits.REPUBLISH_INITIAL_BACKOFF_SECONDS},
            Publication,
        )
    if batch:
        send(batch)
    return len(batch)


def probe_suspects(send: Callable[[Sequence[Publication]], None], is_idle: Callable[[UUID], bool]) -> int:
    """Send a probe to each suspect with an empty queue: without a message it would stay suspect for ever."""
    suspects = Worker.objects.filter(status=WorkerStatus.SUSPECT, lease_until__gt=Now())
    # A REST worker proves that it is alive by asking for work.
    probed = suspects.filter(transport=Transport.CELERY).values_list("id", flat=True)
    probes = [build_probe(worker_id) for worker_id in probed if is_idle(worker_id)]
    if probes:
        send(probes)
    return len(probes)
