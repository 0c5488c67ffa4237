"""Worker setup before registration: state directory, sandbox, self-test and offer.

Every kind of worker is prepared here, whatever its connection to the control plane.
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

from jobs.domain.worker_protocol import MAX_REFUSAL_LENGTH, WorkerOffer
from workers.configuration import WorkerSettings
from workers.control_plane.base import ControlPlane
from workers.errors import WorkerCannotStart
from workers.lease.agent import LEASE_SAFETY_FRACTION
from workers.lease.capacity import describe_host, measure_capacity
from workers.lease.guardian import Guardian
from workers.lease.held_runs import HeldRuns
from workers.run.artifact_cache import ArtifactCache
from workers.run.log_stream import LogFlusher
from workers.run.run import RunContext
from workers.sandbox.cgroups.lifecycle import remove_stale_cgroups
from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.host import Host, detect_host, enable_network
from workers.sandbox.runtimes import Interpreter, find_runtimes
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.self_test.runner import SelfTestResult, run_self_test
from workers.sandbox.slots.deadline import wait_for_runs
from workers.sandbox.values import MIB

logger = logging.getLogger(__name__)

UNTRUSTED_OK = "untrusted-ok"  # offered if the sandbox passes every test of the self-test
SELF_TEST_ADVICE = (
    "Fix the host (see docs/sandbox.md) and restart the worker; or set PUNCTUAL_WORKER_ALLOW_WEAK_SANDBOX=1, if you"
    " trust the authors of its jobs."
)

# Capabilities that placement requires without being asked to.
NETWORK = "network"
INPUTS = "inputs"
SECRETS = "secrets"
ARTIFACTS_DIRECTORY = "artifacts"  # the artifact cache, in the state directory
RUNS_LOCK_FILE = "runs"  # in the state directory, locked by every slot that has a run
PRESTARTED_SLOTS = 4  # further slots start on demand


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """This worker's use of its machine; `lock` is held until the process exits."""

    settings: WorkerSettings
    lock: int
    sandbox: Sandbox
    cache: ArtifactCache
    interpreters: Mapping[str, Interpreter]
    offer: WorkerOffer

    def make_run_context(
        self, control_plane: ControlPlane, held: HeldRuns, flusher: LogFlusher, guardian: Guardian
    ) -> RunContext:
        """Build the context for all runs of the registered worker."""
        if warning := self.offer.details.get("bubblewrap_warning"):
            logger.warning("%s", warning)
        return RunContext(
            control_plane=control_plane,
            sandbox=self.sandbox,
            guardian=guardian,
            interpreters=self.interpreters,
            cache=self.cache,
            flusher=flusher,
            held=held,
        )


def prepare_worker_host(settings: WorkerSettings, *, lease_seconds: float, secrets: bool = True) -> WorkerHost:
    """Lock the state directory, test the sandbox and build the offer; `secrets`: whether the worker accepts them."""
    state = Path(settings.state_dir).resolve()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _lock_directory(state)
    # Each run takes about ten descriptors; the usual soft limit exists for programs that use select().
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, network = _enable_network(detect_host(), settings)
    remove_stale_cgroups()
    _wait_for_previous_runs(state, lease_seconds)
    cache = ArtifactCache(state / ARTIFACTS_DIRECTORY, settings.cache_mb * MIB)
    sandbox = Sandbox(host, inputs=state / ARTIFACTS_DIRECTORY, runs=state / RUNS_LOCK_FILE)
    interpreters = find_runtimes(sandbox)
    self_test = _test_sandbox(sandbox, host, state, interpreters)
    capacity = measure_capacity(settings)
    sandbox.prepare(min(capacity.slots, PRESTARTED_SLOTS))
    offer = WorkerOffer(
        name=capacity.name,
        instance=_load_instance_id(state),
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
        refusal=explain_refusal(self_test, allow_weak=settings.allow_weak_sandbox),
    )
    if offer.refusal:
        logger.error("This worker refuses work. %s", offer.refusal)
    elif not self_test.trustworthy:
        logger.warning("This worker does not offer %s. %s", UNTRUSTED_OK, self_test.limitation)
    return WorkerHost(settings, lock, sandbox, cache, interpreters, offer)


def explain_refusal(self_test: SelfTestResult, *, allow_weak: bool) -> str:
    """Return why this worker refuses work, or ""; tests that could not run are no reason to refuse."""
    if allow_weak or not self_test.problem:
        return ""
    return f"{self_test.problem} {SELF_TEST_ADVICE}"[:MAX_REFUSAL_LENGTH]


def _test_sandbox(sandbox: Sandbox, host: Host, state: Path, interpreters: Mapping[str, Interpreter]) -> SelfTestResult:
    python = interpreters.get("python")
    return run_self_test(
        sandbox,
        worker_directory=state,
        python=python.path if python else None,
        memory_is_metered=host.memory_is_metered,
    )


def _enable_network(host: Host, settings: WorkerSettings) -> tuple[Host, str]:
    """Return the host with a network for runs if it can provide one, and a description or the reason why not."""
    if settings.network is None:
        return host, "off: PUNCTUAL_WORKER_NETWORK is not set"
    try:
        able = enable_network(host, settings.network)
    except SandboxUnavailable as error:
        logger.warning("This worker cannot give runs a network: %s", error)
        return host, str(error)
    return able, able.network.described if able.network else ""


def make_guardian(lease_seconds: float, sandbox: Sandbox) -> Guardian:
    return Guardian(lease_seconds * LEASE_SAFETY_FRACTION, sandbox.set_deadline)


def _lock_directory(state: Path) -> int:
    """Lock the state directory: two workers that share it would confuse their runs."""
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


def _wait_for_previous_runs(state: Path, lease_seconds: float) -> None:
    """Wait until the previous process's runs have ended, as registration releases their attempts to other workers.

    Slots end with their worker unless they are frozen; then the kernel kills them at their deadline.
    """
    if wait_for_runs(state / RUNS_LOCK_FILE, 0):
        return
    logger.warning("Waiting at most %g s for runs of this worker's previous process to end", lease_seconds)
    if not wait_for_runs(state / RUNS_LOCK_FILE, lease_seconds):
        raise WorkerCannotStart(
            "A run of this worker's previous process has not ended within a lease: kill the processes that hold"
            f" {state / RUNS_LOCK_FILE} open (fuser lists them), or try again later."
        )


def _load_instance_id(state: Path) -> UUID:
    """Load the stored id that distinguishes a restart of this worker from another worker of the same name."""
    path = state / "instance"
    try:
        return UUID(path.read_text())
    except (FileNotFoundError, ValueError):
        instance = uuid4()
        fresh = path.with_suffix(".new")
        fresh.write_text(str(instance))
        fresh.replace(path)
        return instance
