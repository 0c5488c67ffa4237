"""One run from message to report: claim, fetch, verify, sandbox, stream, collect, finish.

Invariant: exactly one report is sent to the control plane, or none if the attempt no longer belongs to this worker.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypedDict

from jobs.domain.errors import ArtifactHashMismatch, ArtifactNotUploaded, StaleAttempt, StorageUnavailable
from jobs.domain.messages import RunMessage
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import (
    AttemptFence,
    ClaimedRun,
    ClaimedSecret,
    MovedExecution,
    RunReport,
    format_log_cut,
)
from workers.control_plane.base import ControlPlane
from workers.errors import ControlPlaneUnavailable, GuardianUnavailable, TransferStopped
from workers.lease.guardian import GuardedRun, Guardian
from workers.lease.held_runs import HeldRun, HeldRuns
from workers.run.artifact_cache import ArtifactCache
from workers.run.log_stream import LogFlusher, LogStream
from workers.run.masking import Masker, make_masker
from workers.run.outputs import collect_outputs
from workers.run.programs import RunFiles, build_program
from workers.run.progress import ProgressReader
from workers.run.transfers import RetryBudget, fetch_artifact, store_output
from workers.sandbox.errors import SandboxError
from workers.sandbox.memory_files import memory_file
from workers.sandbox.run import Run
from workers.sandbox.runtimes import Interpreter
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import MIB, ExitReason, Limits, Outcome, Stream

logger = logging.getLogger(__name__)

LOG_CUT_MARK = format_log_cut(f"an attempt may write {Limits.output_bytes // MIB} MB").encode()
PROGRESS_STREAM = "progress"  # for the masker, in addition to stdout and stderr
REASON_BY_EXIT = {
    ExitReason.EXIT: Reason.EXIT,
    ExitReason.SIGNAL: Reason.EXIT,
    ExitReason.TIMEOUT: Reason.TIMEOUT,
    ExitReason.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
}


class Measurements(TypedDict):
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    peak_disk_bytes: int
    log_truncated: bool


@dataclass(frozen=True, slots=True)
class RunContext:
    """The parts that all runs of this worker share."""

    control_plane: ControlPlane
    sandbox: Sandbox
    guardian: Guardian
    interpreters: Mapping[str, Interpreter]
    cache: ArtifactCache
    flusher: LogFlusher
    held: HeldRuns


def run_attempt(context: RunContext, fence: AttemptFence) -> MovedExecution | None:
    """Run one attempt and report it; return None if it does not belong to this worker (any more)."""
    with context.held.holding(fence) as held:
        if held.stop_reason is not None:
            return None
        if context.guardian.expired():
            # A claim might succeed, but its run would be stopped at once. Beat sends the attempt again.
            logger.info("Attempt %s of %s was not claimed: the lease is not renewed", fence.attempt, fence.execution_id)
            return None
        try:
            claimed = context.control_plane.claim(fence)
        except StaleAttempt:
            logger.info("Attempt %s of %s does not belong to this worker", fence.attempt, fence.execution_id)
            return None
        except ControlPlaneUnavailable as error:
            # If the claim was stored, beat releases it, as this worker does not list it; else beat sends it again.
            logger.warning("Attempt %s of %s was not claimed: %s", fence.attempt, fence.execution_id, str(error))
            return None
        try:
            return context.control_plane.finish(fence, _run_to_report(context, fence, held, claimed))
        except StaleAttempt:
            logger.warning("Attempt %s of %s was reassigned while it ran", fence.attempt, fence.execution_id)
            return None


def _run_to_report(context: RunContext, fence: AttemptFence, held: HeldRun, claimed: ClaimedRun) -> RunReport:
    try:
        return _execute(context, fence, held, claimed)
    except StaleAttempt:
        raise
    except TransferStopped:
        return RunReport(held.stop_reason or Reason.RELEASED)
    except ControlPlaneUnavailable as error:
        # As text: OutageHandler logs an outage once, but this line appears for every run.
        logger.warning("The control plane did not answer for too long while %s ran: %s", fence.execution_id, str(error))
        return RunReport(Reason.RELEASED, error="The control plane did not answer while it ran.")
    except GuardianUnavailable as error:
        return RunReport(Reason.RELEASED, error=str(error))
    except Exception as error:
        logger.exception("The run of %s failed unexpectedly", fence.execution_id)
        return RunReport(Reason.SANDBOX_ERROR, error=f"{type(error).__name__}: {error}")


def _execute(context: RunContext, fence: AttemptFence, held: HeldRun, claimed: ClaimedRun) -> RunReport:
    claimed_at = time.monotonic()
    secrets = claimed.opened_secrets()
    problem = next((secret.problem for secret in secrets if secret.problem), None)
    if problem is not None:
        return RunReport(Reason.SECRET_UNAVAILABLE, error=problem)
    with ExitStack() as opened:
        try:
            run_files = _fetch_files(context, held, claimed, claimed_at, opened)
        except (ArtifactHashMismatch, ArtifactNotUploaded) as error:
            return RunReport(Reason.ARTIFACT_MISMATCH, error=str(error))
        except StorageUnavailable as error:
            return RunReport(Reason.ARTIFACT_UNAVAILABLE, error=str(error))
        if held.stop_reason is not None:
            return RunReport(held.stop_reason)
        try:
            _open_secret_files(secrets, run_files, opened)
            limits = _build_limits(claimed, time.monotonic() - claimed_at)
            program = build_program(claimed, run_files, context.interpreters, limits)
            with (
                context.guardian.guard_run() as guarded,
                context.sandbox.start(program, limits, lambda run: _guard_run(held, guarded, run)) as run,
            ):
                return _stream_run(context, fence, guarded, held, run, masker=make_masker(secrets))
        except SandboxError as error:
            return _report_failure(context, fence, held, error)


def _report_failure(context: RunContext, fence: AttemptFence, held: HeldRun, error: SandboxError) -> RunReport:
    if context.guardian.expired():
        # At the deadline the kernel also kills a slot that is still building a sandbox.
        return RunReport(held.stop_reason or Reason.RELEASED, error="The worker's lease was not renewed in time.")
    logger.exception("The sandbox of %s could not be built", fence.execution_id)
    return RunReport(Reason.SANDBOX_ERROR, error=str(error))


def _fetch_files(
    context: RunContext, held: HeldRun, claimed: ClaimedRun, claimed_at: float, opened: ExitStack
) -> RunFiles:
    """Fetch and verify the program and its inputs; the stack closes them."""
    budget = RetryBudget(held, None if claimed.seconds_left is None else claimed_at + claimed.seconds_left)

    def fetch(sha256: str, size: int) -> int:
        descriptor = fetch_artifact(
            context.cache, context.control_plane, budget, claimed.execution_id, sha256=sha256, size=size
        )
        opened.callback(os.close, descriptor)
        return descriptor

    run_files = RunFiles(fetch(claimed.sha256, claimed.size))
    for file in claimed.input_files():
        if held.stop_reason is not None:
            break
        run_files.inputs[file.path] = fetch(file.sha256, file.size)
    return run_files


def _open_secret_files(secrets: Sequence[ClaimedSecret], run_files: RunFiles, opened: ExitStack) -> None:
    """Create in-memory files for secrets with a path; the stack closes them."""
    for secret in secrets:
        if secret.path is not None:
            run_files.secrets[secret.path] = memory_file(secret.value.encode())
            opened.callback(os.close, run_files.secrets[secret.path])


def _guard_run(held: HeldRun, guarded: GuardedRun, run: Run) -> None:
    """Register the sandbox before the program's first instruction, so that a stop can kill it."""
    guarded.admit(run.pidfd)
    held.attach(run.kill)


def _stream_run(
    context: RunContext, fence: AttemptFence, guarded: GuardedRun, held: HeldRun, run: Run, *, masker: Masker | None
) -> RunReport:
    stream = LogStream(lambda chunks, progress: context.control_plane.log(fence, chunks, progress))
    context.control_plane.start(fence, run.receipt)
    context.flusher.add(stream)
    try:
        progress = ProgressReader(stream.report)
        outcome = _relay(run, stream.write, progress.feed, masker)
        progress.close()
        if outcome.output_truncated:
            stream.write(Stream.STDERR.value, LOG_CUT_MARK)
        stream.close()
    finally:
        context.flusher.remove(stream)
    by_signal_9 = outcome.reason is ExitReason.SIGNAL and outcome.signal == signal.SIGKILL
    if outcome.reason is ExitReason.KILLED or (by_signal_9 and guarded.was_killed()):
        return RunReport(held.stop_reason or Reason.RELEASED, **_measurements(outcome))
    if outcome.reason is ExitReason.EXIT and outcome.exit_code == 0:
        return _report_success(context, fence, held, run, outcome, masker=masker)
    return RunReport(
        REASON_BY_EXIT[outcome.reason], exit_code=outcome.exit_code, signal=outcome.signal, **_measurements(outcome)
    )


def _relay(
    run: Run, write: Callable[[str, bytes], None], on_progress: Callable[[bytes], None], masker: Masker | None
) -> Outcome:
    """Relay output and progress until the run ends, with secrets masked."""
    if masker is None:
        return run.stream(lambda name, data: write(name.value, data), on_progress)
    outcome = run.stream(
        lambda name, data: write(name.value, masker.feed(name.value, data)),
        lambda data: on_progress(masker.feed(PROGRESS_STREAM, data)),
    )
    # A run that was killed may have written only part of a secret.
    cut = outcome.output_truncated or outcome.reason is not ExitReason.EXIT
    for name in Stream:
        write(name.value, masker.flush(name.value, cut=cut))
    on_progress(masker.flush(PROGRESS_STREAM, cut=cut))
    return outcome


def _report_success(
    context: RunContext, fence: AttemptFence, held: HeldRun, run: Run, outcome: Outcome, *, masker: Masker | None
) -> RunReport:
    budget = RetryBudget(held)
    try:
        collected = collect_outputs(
            run.output_directory,
            lambda output, body: store_output(context.control_plane, budget, fence, output, body),
            masker,
        )
    except TransferStopped:
        return RunReport(held.stop_reason or Reason.RELEASED, **_measurements(outcome))
    except StorageUnavailable as error:
        return RunReport(
            Reason.ARTIFACT_UNAVAILABLE,
            error=f"The program succeeded, but its outputs could not be stored: {error}",
            **_measurements(outcome),
        )
    return RunReport(
        Reason.EXIT,
        exit_code=0,
        result=collected.result,
        outputs=collected.outputs,
        error="\n".join(collected.problems),
        **_measurements(outcome),
    )


def _measurements(outcome: Outcome) -> Measurements:
    return {
        "cpu_seconds": outcome.cpu_seconds,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "peak_disk_bytes": outcome.peak_disk_bytes,
        "log_truncated": outcome.output_truncated,
    }


def _build_limits(claimed: ClaimedRun, since_claim: float) -> Limits:
    return Limits(
        wall_seconds=claimed.wall_seconds(since_claim),
        memory_bytes=claimed.memory_mb * MIB,
        disk_bytes=max(claimed.disk_mb, 1) * MIB,
        cpus=claimed.cpu,
    )


def make_fence(message: RunMessage, held: HeldRuns) -> AttemptFence:
    registration = held.registration
    return AttemptFence(message.execution_id, message.attempt, registration.worker_id, registration.incarnation)
