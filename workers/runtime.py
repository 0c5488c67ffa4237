"""The equipment of this worker process, set once by the step that builds it and read by the tasks."""

from __future__ import annotations

from workers.errors import WorkerCannotStart
from workers.run import Equipment

_equipment: Equipment | None = None


def equip(equipment: Equipment) -> None:
    global _equipment  # noqa: PLW0603 - one worker, one process
    _equipment = equipment


def equipment() -> Equipment:
    if _equipment is None:
        raise WorkerCannotStart("This Celery worker runs no executions: it was started without Punctual's agent.")
    return _equipment
