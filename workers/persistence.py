"""Repeats what could not be said for a while: an outage shorter than a lease costs no run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from jobs.errors import StorageUnavailable
from workers.errors import ControlPlaneRefused, ControlPlaneUnavailable

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

RETRY_FOR_SECONDS = 30.0
# What a run came to is worth more patience: nobody is taken for lost right after an outage, and over HTTP the end of a
# run that left files waits for the object store, too.
REPORT_FOR_SECONDS = 600.0
RETRY_EVERY_SECONDS = 0.5


def persist(call: Callable[[], Answer], seconds: float = RETRY_FOR_SECONDS) -> Answer:
    """For calls that the fence makes harmless to repeat. One that is refused for good is not repeated."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except ControlPlaneRefused:
            raise
        except (ControlPlaneUnavailable, StorageUnavailable) as error:
            if time.monotonic() >= deadline:
                raise
            logger.warning("The control plane does not answer, trying again: %s", error)
            time.sleep(RETRY_EVERY_SECONDS)
