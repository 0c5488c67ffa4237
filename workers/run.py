"""One run, from message to end: claim, fetch, verify, sandbox, stream, collect, finish.

Whatever goes wrong, exactly one report goes to the control plane, or none if the attempt is no longer this worker's.
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

from jobs.errors import ArtifactHashMismatch, ArtifactNotUploaded, StaleAttempt, StorageUnavailable
from jobs.messages import RunMessage
from jobs.protocol import Claimed, ClaimedSecret, Hold, Moved, Report
from jobs.states import Reason
from workers.artifact_cache import ArtifactCache
from workers.control_plane import ControlPlane
from workers.errors import ControlPlaneUnavailable, GuardianUnavailable, TransferStopped
from workers.guardian import Guardian, Ward
from workers.held_runs import HeldRun, HeldRuns
from workers.log_stream import LogFlusher, LogStream
from workers.masking import Masker, masker_for
from workers.outputs import collect_outputs
from workers.programs import Given, make_program
from workers.progress import ProgressReader
from workers.sandbox import EndReason, Interpreter, Limits, Outcome, Run, Sandbox, SandboxError, Stream, memory_file
from workers.transfers import Patience, fetch_artifact, store_output

logger = logging.getLogger(__name__)

MEGABYTE = 1024 * 1024
PROGRESS = "progress"  # beside the names of a run's streams
REASONS = {
    EndReason.EXIT: Reason.EXIT,
    EndReason.SIGNAL: Reason.EXIT,
    EndReason.TIMEOUT: Reason.TIMEOUT,
    EndReason.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
}


class Measured(TypedDict):
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    peak_disk_bytes: int
    log_truncated: bool


@dataclass(frozen=True, slots=True)
class Equipment:
    """What every run of this worker uses."""

    control_plane: ControlPlane
    sandbox: Sandbox
    guardian: Guardian
    interpreters: Mapping[str, Interpreter]
    cache: ArtifactCache
    flusher: LogFlusher
    held: HeldRuns


def run_attempt(equipment: Equipment, hold: Hold) -> Moved | None:
    """None: the attempt was not, or is no longer, this worker's."""
    with equipment.held.holding(hold) as held:
        if held.stop_reason is not None:
            return None
        if equipment.guardian.expired():
            # The claim might still be had, and its run would be stopped at once. It is told of again if it stays ours.
            logger.info("Attempt %s of %s is left: the lease is not renewed", hold.attempt, hold.execution_id)
            return None
        try:
            claimed = equipment.control_plane.claim(hold)
        except StaleAttempt:
            logger.info("Attempt %s of %s is not ours to run", hold.attempt, hold.execution_id)
            return None
        try:
            return equipment.control_plane.finish(hold, _report(equipment, hold, held, claimed))
        except StaleAttempt:
            logger.warning("Attempt %s of %s was given away while it ran", hold.attempt, hold.execution_id)
            return None


def _report(equipment: Equipment, hold: Hold, held: HeldRun, claimed: Claimed) -> Report:
    try:
        return _execute(equipment, hold, held, claimed)
    except StaleAttempt:
        raise
    except TransferStopped:
        return Report(held.stop_reason or Reason.RELEASED)
    except ControlPlaneUnavailable:
        logger.exception("The control plane was away for too long while %s ran", hold.execution_id)
        return Report(Reason.RELEASED, error="The control plane did not answer while it ran.")
    except GuardianUnavailable as error:
        return Report(Reason.RELEASED, error=str(error))
    except Exception as error:
        logger.exception("The run of %s could not be carried through", hold.execution_id)
        return Report(Reason.SANDBOX_ERROR, error=f"{type(error).__name__}: {error}")


def _execute(equipment: Equipment, hold: Hold, held: HeldRun, claimed: Claimed) -> Report:
    claimed_at = time.monotonic()
    secrets = claimed.opened_secrets()
    problem = next((secret.problem for secret in secrets if secret.problem), None)
    if problem is not None:
        return Report(Reason.SECRET_UNAVAILABLE, error=problem)
    with ExitStack() as opened:
        try:
            given = _fetch_all(equipment, held, claimed, claimed_at, opened)
        except (ArtifactHashMismatch, ArtifactNotUploaded) as error:
            return Report(Reason.ARTIFACT_MISMATCH, error=str(error))
        except StorageUnavailable as error:
            return Report(Reason.ARTIFACT_UNAVAILABLE, error=str(error))
        if held.stop_reason is not None:
            return Report(held.stop_reason)
        try:
            _open_secrets(secrets, given, opened)
            limits = _limits(claimed, time.monotonic() - claimed_at)
            program = make_program(claimed, given, equipment.interpreters, limits)
            with (
                equipment.guardian.ward() as ward,
                equipment.sandbox.start(program, limits, lambda run: _secure(held, ward, run)) as run,
            ):
                return _watch(equipment, hold, ward, held, run, masker=masker_for(secrets))
        except SandboxError as error:
            logger.exception("The sandbox of %s could not be built", hold.execution_id)
            return Report(Reason.SANDBOX_ERROR, error=str(error))


def _fetch_all(equipment: Equipment, held: HeldRun, claimed: Claimed, claimed_at: float, opened: ExitStack) -> Given:
    """The program and all that it is given, each verified; what is opened is closed with the stack."""

    patience = Patience(held, None if claimed.seconds_left is None else claimed_at + claimed.seconds_left)

    def fetch(sha256: str, size: int) -> int:
        descriptor = fetch_artifact(
            equipment.cache, equipment.control_plane, patience, claimed.execution_id, sha256=sha256, size=size
        )
        opened.callback(os.close, descriptor)
        return descriptor

    given = Given(fetch(claimed.sha256, claimed.size))
    for file in claimed.input_files():
        if held.stop_reason is not None:
            break
        given.inputs[file.path] = fetch(file.sha256, file.size)
    return given


def _open_secrets(secrets: Sequence[ClaimedSecret], given: Given, opened: ExitStack) -> None:
    """Those that are given as files: in memory only, and closed with the stack."""
    for secret in secrets:
        if secret.path is not None:
            given.secrets[secret.path] = memory_file(secret.value.encode())
            opened.callback(os.close, given.secrets[secret.path])


def _secure(held: HeldRun, ward: Ward, run: Run) -> None:
    """Before the program's first instruction: a stop that was asked for by now must find something to kill."""
    ward.admit(run.pidfd)
    held.attach(run.kill)


def _watch(equipment: Equipment, hold: Hold, ward: Ward, held: HeldRun, run: Run, *, masker: Masker | None) -> Report:
    stream = LogStream(lambda chunks, progress: equipment.control_plane.log(hold, chunks, progress))
    equipment.control_plane.start(hold, run.receipt)
    equipment.flusher.add(stream)
    try:
        progress = ProgressReader(stream.report)
        outcome = _relay(run, stream.write, progress.feed, masker)
        progress.close()
        stream.close()
    finally:
        equipment.flusher.remove(stream)
    by_signal_9 = outcome.reason is EndReason.SIGNAL and outcome.signal == signal.SIGKILL
    if outcome.reason is EndReason.KILLED or (by_signal_9 and ward.was_killed()):
        return Report(held.stop_reason or Reason.RELEASED, **_measured(outcome))
    if outcome.reason is EndReason.EXIT and outcome.exit_code == 0:
        return _succeed(equipment, hold, held, run, outcome, masker=masker)
    return Report(REASONS[outcome.reason], exit_code=outcome.exit_code, signal=outcome.signal, **_measured(outcome))


def _relay(
    run: Run, write: Callable[[str, bytes], None], on_progress: Callable[[bytes], None], masker: Masker | None
) -> Outcome:
    """Until the run is over; nothing that it says goes on before its secrets are taken out."""
    if masker is None:
        return run.stream(lambda name, data: write(name.value, data), on_progress)
    outcome = run.stream(
        lambda name, data: write(name.value, masker.feed(name.value, data)),
        lambda data: on_progress(masker.feed(PROGRESS, data)),
    )
    # What did not end by itself may have been about to write the rest of a secret.
    cut = outcome.output_truncated or outcome.reason is not EndReason.EXIT
    for name in Stream:
        write(name.value, masker.flush(name.value, cut=cut))
    on_progress(masker.flush(PROGRESS, cut=cut))
    return outcome


def _succeed(
    equipment: Equipment, hold: Hold, held: HeldRun, run: Run, outcome: Outcome, *, masker: Masker | None
) -> Report:
    patience = Patience(held)
    try:
        collected = collect_outputs(
            run.output_directory,
            lambda output, body: store_output(equipment.control_plane, patience, hold, output, body),
            masker,
        )
    except TransferStopped:
        return Report(held.stop_reason or Reason.RELEASED, **_measured(outcome))
    except StorageUnavailable as error:
        return Report(
            Reason.ARTIFACT_UNAVAILABLE,
            error=f"The program ended well, but its outputs could not be stored: {error}",
            **_measured(outcome),
        )
    return Report(
        Reason.EXIT,
        exit_code=0,
        result=collected.result,
        outputs=collected.outputs,
        error="\n".join(collected.problems),
        **_measured(outcome),
    )


def _measured(outcome: Outcome) -> Measured:
    return {
        "cpu_seconds": outcome.cpu_seconds,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "peak_disk_bytes": outcome.peak_disk_bytes,
        "log_truncated": outcome.output_truncated,
    }


def _limits(claimed: Claimed, since_claim: float) -> Limits:
    return Limits(
        wall_seconds=claimed.wall_seconds(since_claim),
        memory_bytes=claimed.memory_mb * MEGABYTE,
        disk_bytes=max(claimed.disk_mb, 1) * MEGABYTE,
        cpus=claimed.cpu,
    )


def hold_for(message: RunMessage, held: HeldRuns) -> Hold:
    registration = held.registration
    return Hold(message.execution_id, message.attempt, registration.worker_id, registration.incarnation)
