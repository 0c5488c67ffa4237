"""Tells workers again what was placed on them and nobody has taken, and finds out whether suspects take messages.

A message is a hint; the claim decides. The beat that places an execution sends its first message after the commit; what
nobody takes is sent again by whichever beat looks first. So neither a lost message nor a beat that died between commit
and publication loses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from jobs import conf, sql
from jobs.messages import Publication, Transport, probe
from jobs.models import Worker, WorkerStatus
from jobs.services.database import bounded


def republish_unclaimed(
    send: Callable[[Sequence[Publication]], None], *, limit: int = conf.PUBLISH_BATCH_MESSAGES
) -> int:
    """One batch: taken in a transaction of its own, then sent. What fails to be sent is taken again later."""
    with transaction.atomic(), bounded(statement_seconds=10):
        batch = sql.fetch("take_unclaimed", {"limit": limit, "republish_seconds": conf.REPUBLISH_SECONDS}, Publication)
    if batch:
        send(batch)
    return len(batch)


def probe_suspects(send: Callable[[Sequence[Publication]], None], is_idle: Callable[[UUID], bool]) -> int:
    """Gives suspects something to take, or they would stay so for ever; one message each, as long as it lies there."""
    suspects = Worker.objects.filter(status=WorkerStatus.SUSPECT, lease_until__gt=Now())
    # One that asks over HTTP shows by asking.
    living = suspects.filter(transport=Transport.CELERY).values_list("id", flat=True)
    probes = [probe(worker_id) for worker_id in living if is_idle(worker_id)]
    if probes:
        send(probes)
    return len(probes)
