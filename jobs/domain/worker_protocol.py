"""Values that workers and the control plane exchange, independent of transport, Django and database."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from jobs.domain.states import TERMINAL, Reason

# Incremented by every incompatible change.
PROTOCOL_VERSION = 2

MAX_CHUNKS_PER_APPEND = 1000
MAX_PROGRESS_LENGTH = 200
MAX_REFUSAL_LENGTH = 2000
# A run whose deadline passed during the fetch still starts and is stopped at once, like any late run.
MIN_WALL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """What a worker offers when it registers."""

    name: str
    instance: UUID
    pool: str
    host: str
    slots: int
    cpu: float
    memory_mb: int
    disk_mb: int
    capabilities: Sequence[str]
    details: Mapping[str, object]
    resources: Mapping[str, int] = field(default_factory=dict)
    refusal: str = ""  # why it accepts no work although it is online


@dataclass(frozen=True, slots=True)
class Registration:
    worker_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """Current usage of a worker, sent with every lease renewal."""

    runs: int
    taken: int  # messages consumed from its queue since it started
    load: float  # of its machine, averaged over a minute
    memory_available_mb: int  # of its machine


@dataclass(frozen=True, slots=True)
class StopOrder:
    """Order to stop an attempt that was cancelled or that the worker no longer owns."""

    execution_id: UUID
    attempt: int
    cancelled: bool


@dataclass(frozen=True, slots=True)
class AttemptFence:
    """Claimed ownership of an attempt; every write of a worker is fenced by it."""

    execution_id: UUID
    attempt: int
    worker_id: UUID
    incarnation: int

    def parameters(self) -> dict[str, object]:
        return {
            "execution_id": self.execution_id,
            "attempt": self.attempt,
            "worker_id": self.worker_id,
            "incarnation": self.incarnation,
        }

    def as_json(self) -> dict[str, object]:
        return self.parameters() | {"execution_id": str(self.execution_id), "worker_id": str(self.worker_id)}


@dataclass(frozen=True, slots=True)
class ClaimedInput:
    """An input file of the run; without a path, its standard input."""

    path: str | None
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class ClaimedSecret:
    """A secret for the run, as a variable or a file, or the reason why it is unavailable."""

    name: str
    value: str = field(default="", repr=False)
    env: str | None = None
    path: str | None = None
    problem: str = ""  # the run does not start and fails with Reason.SECRET_UNAVAILABLE and this error


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """Everything a run needs; JSON columns stay text until they are used."""

    execution_id: UUID
    attempt: int
    job_id: UUID
    job_name: str
    run_id: UUID
    scheduled_for: datetime
    claimed_at: datetime
    runtime: str
    args: str
    env: str
    cpu: float
    memory_mb: int
    disk_mb: int
    timeout_seconds: float
    sha256: str
    size: int
    seconds_left: float | None = None  # until its deadline, at the claim
    inputs: str = "[]"
    network: bool = False
    secrets: str = field(default="[]", repr=False)  # sealed as stored until `access.secret_grants` decrypts them

    def input_files(self) -> list[ClaimedInput]:
        return [ClaimedInput(**each) for each in json.loads(self.inputs)]

    def opened_secrets(self) -> list[ClaimedSecret]:
        return [ClaimedSecret(**each) for each in json.loads(self.secrets)]

    def wall_seconds(self, since_claim: float) -> float:
        """Return the time limit of a run that starts this long after its claim: a slow fetch shortens it."""
        if self.seconds_left is None:
            return self.timeout_seconds
        return min(self.timeout_seconds, max(self.seconds_left - since_claim, MIN_WALL_SECONDS))


@dataclass(frozen=True, slots=True)
class MovedExecution:
    """An execution after a move; the caller that finished it resolves its dependents."""

    execution_id: UUID
    job_id: UUID
    run_id: UUID
    state: str

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True)
class Chunk:
    sequence: int
    stream: str
    logged_at: datetime
    data: bytes


def format_log_cut(why: str) -> str:
    """Return the last line of a truncated log."""
    return f"\n[punctual] Log cut here: {why}.\n"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress as reported by the run."""

    percent: float | None  # None: unknown
    message: str


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """An output file of the run, already in the object store."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunStart:
    """The start of a run, stored a moment later or together with its end."""

    receipt: Mapping[str, object]  # a description of the sandbox
    seconds_ago: float = 0.0


@dataclass(frozen=True, slots=True)
class RunReport:
    """The outcome of a run as reported by its worker."""

    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    result: object = None
    outputs: Sequence[StoredOutput] = ()
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    peak_disk_bytes: int | None = None
    log_truncated: bool = False
