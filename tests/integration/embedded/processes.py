"""Whether a real process is still there."""

from __future__ import annotations

import psutil


def is_gone(pid: int) -> bool:
    """A zombie is gone: it waits only for its parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
