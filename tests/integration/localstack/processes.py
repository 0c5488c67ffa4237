"""Check of real processes."""

from __future__ import annotations

import psutil


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
