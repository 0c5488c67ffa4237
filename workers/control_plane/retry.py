"""Retries of calls to the control plane: an outage shorter than a lease interrupts no run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from jobs.domain.errors import StaleAttempt, StorageUnavailable
from workers.errors import ControlPlaneUnavailable, WorkerTokenRejected

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

RETRY_FOR_SECONDS = 30.0
# Reports are retried longer: no worker counts as lost right after an outage, and over HTTP the report of a run with
# outputs also waits for the object store.
REPORT_FOR_SECONDS = 600.0
RETRY_INTERVAL_SECONDS = 0.5


def retry_until(call: Callable[[], Answer], seconds: float = RETRY_FOR_SECONDS) -> Answer:
    """Retry a call during an outage, for at most this long; rejected calls are not retried."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except WorkerTokenRejected:
            raise
        except (ControlPlaneUnavailable, StorageUnavailable) as error:
            if time.monotonic() >= deadline:
                raise
            logger.warning("The control plane does not answer, retrying: %s", error)
            time.sleep(RETRY_INTERVAL_SECONDS)


def finish_idempotently(finish: Callable[[], Answer]) -> Callable[[], Answer | None]:
    """Return `finish` for use with retries: a stale attempt on a later call means that an earlier one succeeded."""
    called = False

    def finish_once() -> Answer | None:
        nonlocal called
        try:
            return finish()
        except StaleAttempt:
            if called:
                return None
            raise
        finally:
            called = True

    return finish_once
