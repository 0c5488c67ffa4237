"""The one message that beat sends to a worker: which execution, which attempt. The claim gives the rest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

RUN_TASK = "workers.run_execution"


class Transport(StrEnum):
    """How a worker hears that something was placed on it."""

    CELERY = "celery"  # a message on its own queue
    REST = "rest"  # it asks, and its question waits for a wake-up


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
    """What is to be sent to which worker; the name is for those who look at the queue."""

    execution_id: UUID
    attempt: int
    worker_id: UUID
    job_name: str
    transport: str = Transport.CELERY

    @property
    def message(self) -> RunMessage:
        return RunMessage(self.execution_id, self.attempt)


def probe(worker_id: UUID) -> Publication:
    """Of an execution that there is not: a worker that takes it runs nothing, and shows that it takes messages."""
    return Publication(UUID(int=0), 1, worker_id, "probe")


def parse_run_message(execution_id: object, attempt: object) -> RunMessage | None:
    """None for what no beat of ours sent: anybody who can write to Redis can write anything."""
    if not isinstance(execution_id, str) or type(attempt) is not int or not 0 < attempt < 2**31:
        return None
    try:
        return RunMessage(UUID(execution_id), attempt)
    except ValueError:
        return None


def worker_queue(worker_id: UUID) -> str:
    return f"worker.{worker_id}"
