"""What every worker needs before it meets its control plane: a directory of its own, a sandbox, and what it can offer.

However a worker speaks to the control plane, it is made here, so that all of them offer and run the same; only
secrets are not offered by one that would have to open them and cannot.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from jobs.protocol import MAX_REFUSAL_LENGTH, Offer
from workers.agent import SAFETY_SHARE
from workers.artifact_cache import ArtifactCache
from workers.capacity import MEGABYTE, describe_host, measure_capacity
from workers.configuration import WorkerSettings
from workers.control_plane import ControlPlane
from workers.errors import WorkerCannotStart
from workers.guardian import Guardian
from workers.held_runs import HeldRuns
from workers.log_stream import LogFlusher
from workers.run import Equipment
from workers.sandbox import (
    Host,
    Interpreter,
    Sandbox,
    SandboxUnavailable,
    SelfTest,
    clean_leftovers,
    detect_host,
    find_runtimes,
    run_self_test,
    with_network,
)

logger = logging.getLogger(__name__)

# What a worker offers whose sandbox has held against every attempt to leave it.
UNTRUSTED_OK = "untrusted-ok"
REMEDY = (
    "Mend the host (docs/sandbox.md tells how) and restart the worker; or set PUNCTUAL_WORKER_ALLOW_WEAK_SANDBOX=1, if"
    " you trust whoever writes its jobs."
)
# Capabilities that placement asks for by itself. A worker of a release that knew no inputs would run without them.
NETWORK = "network"
INPUTS = "inputs"
SECRETS = "secrets"
READY_SLOTS = 4  # before the first run; the others when they are needed


@dataclass(frozen=True, slots=True)
class Workshop:
    """The machine as this worker uses it; the lock is held for as long as the process lives."""

    settings: WorkerSettings
    lock: int
    sandbox: Sandbox
    cache: ArtifactCache
    interpreters: Mapping[str, Interpreter]
    offer: Offer

    def equip(self, control_plane: ControlPlane, held: HeldRuns, flusher: LogFlusher, guardian: Guardian) -> Equipment:
        return Equipment(
            control_plane=control_plane,
            sandbox=self.sandbox,
            guardian=guardian,
            interpreters=self.interpreters,
            cache=self.cache,
            flusher=flusher,
            held=held,
        )


def open_workshop(settings: WorkerSettings, *, secrets: bool = True) -> Workshop:
    """`secrets`: whether the runs of this worker can be given theirs."""
    state = Path(settings.state_dir).resolve()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _lock_directory(state)
    # Each run takes about ten descriptors, and the usual soft limit is for programs that use select().
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, network = _with_network(detect_host(), settings)
    clean_leftovers()
    cache = ArtifactCache(state / "artifacts", settings.cache_mb * MEGABYTE)
    sandbox = Sandbox(host)
    interpreters = find_runtimes(sandbox)
    self_test = _test_sandbox(sandbox, host, state, interpreters)
    capacity = measure_capacity(settings)
    # By the time it is registered it is ready to run, and nothing is left of a former life.
    sandbox.prepare(min(capacity.slots, READY_SLOTS))
    offer = Offer(
        name=capacity.name,
        instance=_instance(state),
        pool=settings.pool,
        host=capacity.host,
        slots=capacity.slots,
        cpu=capacity.cpu,
        memory_mb=capacity.memory_mb,
        disk_mb=capacity.disk_mb,
        capabilities=sorted(
            [
                *interpreters,
                INPUTS,
                *([SECRETS] if secrets else []),
                *([UNTRUSTED_OK] if self_test.trustworthy else []),
                *([NETWORK] if host.network else []),
            ]
        ),
        details={**describe_host(host, interpreters, self_test), "network_details": network},
        resources=capacity.resources,
        refusal=refusal_of(self_test, allow_weak=settings.allow_weak_sandbox),
    )
    if offer.refusal:
        logger.error("This worker refuses work. %s", offer.refusal)
    elif not self_test.trustworthy:
        logger.warning("This worker does not offer %s. %s", UNTRUSTED_OK, self_test.shortcoming)
    return Workshop(settings, lock, sandbox, cache, interpreters, offer)


def refusal_of(self_test: SelfTest, *, allow_weak: bool) -> str:
    """What was not tried is no reason to refuse: it only is no reason to trust."""
    if allow_weak or not self_test.problem:
        return ""
    return f"{self_test.problem} {REMEDY}"[:MAX_REFUSAL_LENGTH]


def _test_sandbox(sandbox: Sandbox, host: Host, state: Path, interpreters: Mapping[str, Interpreter]) -> SelfTest:
    python = interpreters.get("python")
    return run_self_test(
        sandbox,
        worker_directory=state,
        python=python.path if python else None,
        memory_is_metered=host.memory_is_metered,
    )


def _with_network(host: Host, settings: WorkerSettings) -> tuple[Host, str]:
    """Where it cannot give one the worker runs what needs none, and says why."""
    if settings.network is None:
        return host, "off: PUNCTUAL_WORKER_NETWORK is not set"
    try:
        able = with_network(host, settings.network)
    except SandboxUnavailable as error:
        logger.warning("No run of this worker gets a network: %s", error)
        return host, str(error)
    return able, able.network.described if able.network else ""


def make_guardian(lease_seconds: float) -> Guardian:
    return Guardian(lease_seconds * SAFETY_SHARE)


def _lock_directory(state: Path) -> int:
    """Two workers with one state would take each other's work for their own."""
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise WorkerCannotStart(
            f"Another worker uses {state}; give this one a directory of its own (PUNCTUAL_WORKER_STATE_DIR)"
            " and a name of its own (PUNCTUAL_WORKER_NAME)."
        ) from error
    return descriptor


def _instance(state: Path) -> UUID:
    """Made once and kept beside the lock: it tells this worker's restart from another worker of its name."""
    path = state / "instance"
    try:
        return UUID(path.read_text())
    except (FileNotFoundError, ValueError):
        instance = uuid4()
        fresh = path.with_suffix(".new")
        fresh.write_text(str(instance))
        fresh.replace(path)
        return instance
