"""What workers and the control plane say to each other: values, whatever carries them, without Django or a database."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from jobs.states import TERMINAL, Reason

# What a worker of another version could not follow changes this number.
PROTOCOL_VERSION = 2

# So many pieces of a log are said at once.
MAX_CHUNKS_SAID = 1000
MAX_PROGRESS_LENGTH = 200
MAX_REFUSAL_LENGTH = 2000
# A run whose deadline passed while it was fetched begins and is stopped: it ends as any that came too late.
MIN_WALL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker says about itself when it registers."""

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
    refusal: str = ""  # why it takes no work, though it is here


@dataclass(frozen=True, slots=True)
class Registration:
    worker_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a worker uses now, and that it still takes messages; it says so with every renewal."""

    runs: int
    taken: int  # messages that it took off its queue in this life
    load: float  # of its machine, over a minute
    memory_available_mb: int  # of its machine


@dataclass(frozen=True, slots=True)
class Order:
    """An attempt that the worker must stop: cancelled by somebody, or no longer its own."""

    execution_id: UUID
    attempt: int
    cancelled: bool


@dataclass(frozen=True, slots=True)
class Hold:
    """Who says that it holds which attempt: the fence that every write of a worker passes."""

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


@dataclass(frozen=True, slots=True)
class ClaimedInput:
    """A file that the run is given; without a path, its standard input."""

    path: str | None
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class ClaimedSecret:
    """A secret that the run is given, as a variable or as a file; or the problem for which it cannot be given."""

    name: str
    value: str = field(default="", repr=False)
    env: str | None = None
    path: str | None = None
    problem: str = ""  # such a run does not begin: it ends with Reason.SECRET_UNAVAILABLE and these words


@dataclass(frozen=True, slots=True)
class Claimed:
    """All that a run needs to know; JSON columns come as text and are read by the caller."""

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
    seconds_left: float | None = None  # until its deadline, when it was claimed
    inputs: str = "[]"
    network: bool = False
    secrets: str = field(default="[]", repr=False)  # sealed as they are stored, until the claim's service opens them

    def input_files(self) -> list[ClaimedInput]:
        return [ClaimedInput(**each) for each in json.loads(self.inputs)]

    def opened_secrets(self) -> list[ClaimedSecret]:
        return [ClaimedSecret(**each) for each in json.loads(self.secrets)]

    def wall_seconds(self, since_claim: float) -> float:
        """How long a run may take that begins so many seconds after the claim: what was fetched slowly runs shorter."""
        if self.seconds_left is None:
            return self.timeout_seconds
        return min(self.timeout_seconds, max(self.seconds_left - since_claim, MIN_WALL_SECONDS))


@dataclass(frozen=True, slots=True)
class Moved:
    """An execution after a move; whoever ended it resolves what depends on it."""

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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run says it is."""

    percent: float | None  # None: it does not know
    message: str


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A file that the run left, already in the object store."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended, in the worker's words."""

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
