"""Tells workers again what was placed on them and nobody has taken.

A message is a hint; the claim decides. The beat that places an execution sends its first message after the commit; what
nobody takes is sent again by whichever beat looks first. So neither a lost message nor a beat that died between commit
and publication loses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db import transaction

from jobs import conf, sql
from jobs.messages import Publication
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
