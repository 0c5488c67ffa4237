"""The message that beat sends to a worker: an execution and an attempt. The claim returns the rest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

RUN_TASK = "workers.run_execution"
WORKER_QUEUE_PREFIX = "worker."


class Transport(StrEnum):
    """How a worker learns of executions placed on it."""

    CELERY = "celery"  # a message on its own queue
    REST = "rest"  # long polling over HTTP


@dataclass(frozen=True, slots=True)
class RunMessage:
    execution_id: UUID
    attempt: int

    @property
    def task_id(self) -> str:
        return f"{self.execution_id}-{self.attempt}"

    @property
    def args(self) -> tuple[str, int]:
        return (str(self.execution_id), self.attempt)


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to be sent to a worker; the job's name is for people who inspect the queue."""

    execution_id: UUID
    attempt: int
    worker_id: UUID
    job_name: str
    transport: str = Transport.CELERY

    @property
    def message(self) -> RunMessage:
        return RunMessage(self.execution_id, self.attempt)


def build_probe(worker_id: UUID) -> Publication:
    """Build a message for a nonexistent execution: consuming it runs nothing, but proves that the worker consumes."""
    return Publication(UUID(int=0), 1, worker_id, "probe")


def parse_run_message(execution_id: object, attempt: object) -> RunMessage | None:
    """Return None unless the message is well-formed: Redis may contain anything."""
    if not isinstance(execution_id, str) or type(attempt) is not int or not 0 < attempt < 2**31:
        return None
    try:
        return RunMessage(UUID(execution_id), attempt)
    except ValueError:
        return None


def worker_queue(worker_id: UUID) -> str:
    return f"{WORKER_QUEUE_PREFIX}{worker_id}"


def is_worker_queue(name: str) -> bool:
    return name.startswith(WORKER_QUEUE_PREFIX)
