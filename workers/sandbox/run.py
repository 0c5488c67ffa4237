"""A program running in its sandbox.

Invariant: every run ends. A watcher thread enforces its time and memory limits whatever the reader of its output does.
The run has ended when pid 1 of its pid namespace has, as the kernel then kills all other processes in it.
"""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType

from workers.sandbox import pidfd
from workers.sandbox.errors import SandboxError
from workers.sandbox.exit_status import classify_exit, parse_exit_code
from workers.sandbox.metering import Meter, StorageMeter
from workers.sandbox.network.uplink import Uplink
from workers.sandbox.pipes import Pipes, read_all, read_chunk
from workers.sandbox.slots.launcher import BuiltSandbox, ReapResult
from workers.sandbox.slots.pool import PooledSlot, SlotPool
from workers.sandbox.values import ExitReason, Limits, Outcome, ResourceUsage, Stream

SAMPLE_INTERVAL_SECONDS = 0.1


class Run:
    """Returned by `Sandbox.start`; a context manager that ends the run and removes its sandbox on exit."""

    def __init__(
        self,
        *,
        launched: BuiltSandbox,
        uplink: Uplink | None,
        slots: SlotPool,
        pooled: PooledSlot,
        pipes: Pipes,
        limits: Limits,
        meter: Meter,
        receipt: Mapping[str, object],
    ) -> None:
        self.pid = launched.child
        self._launched = launched
        self._uplink = uplink
        self._slots = slots
        self._pooled = pooled
        self._pipes = pipes
        self._limits = limits
        self._meter = meter
        self._storage = StorageMeter(launched.writable, limits)
        self._receipt = receipt
        self._lock = threading.Lock()  # guards _kill_reason and _closed: kill() is called from any thread
        self._kill_reason: ExitReason | None = None
        self._closed = False
        self._streamed = False
        self._reaped: ReapResult | None = None
        self._ended = False
        self._usage = ResourceUsage(cpu_seconds=None, peak_memory_bytes=None)
        self._output: int | None = None
        self._started_at = self._ended_at = datetime.now(UTC)
        self._watcher = threading.Thread(target=self._watch, name=f"sandbox-{self.pid}", daemon=True)

    def release(self) -> None:
        """Start the program; called once, by `Sandbox.start`.

        Raise SandboxError if the slot has ended: nothing would kill the program at the end of the worker's lease.
        """
        if not self._has_slot():
            raise SandboxError("The slot of the sandbox ended before the program was started.")
        if self._pooled.cgroup is not None:
            self._pooled.cgroup.begin(self._limits)
        self._started_at = datetime.now(UTC)
        self._watcher.start()
        self._pipes.release()
        if not self._has_slot():
            # This process may have been frozen since the first check.
            self.kill()
            self._watcher.join(timeout=2 * pidfd.EXIT_TIMEOUT_SECONDS)
            raise SandboxError("The slot of the sandbox ended while the program was started.")

    def _has_slot(self) -> bool:
        return self._pooled.slot.alive

    def disown(self) -> None:
        """Make `kill()` do nothing: the sandbox is removed before its program was started."""
        with self._lock:
            self._closed = True

    def stream(
        self, on_output: Callable[[Stream, bytes], None], on_progress: Callable[[bytes], None] = lambda data: None
    ) -> Outcome:
        """Pass on the output as it arrives and block until the run ends.

        `on_progress` gets the bytes that the program writes to descriptor 3. If a callback raises, the run is killed
        and the exception propagates. A slow callback blocks the program at its pipes; its limits still apply.
        """
        if self._streamed:
            raise SandboxError("The output of a run can be streamed only once.")
        self._streamed = True
        try:
            truncated = self._relay(on_output, on_progress)
        except BaseException:
            self.kill()
            raise
        finally:
            self._collect()
        return self._outcome(truncated=truncated)

    def kill(self) -> None:
        """Kill all processes of the run; idempotent, callable from any thread."""
        self._end(ExitReason.KILLED)

    @property
    def pidfd(self) -> int:
        """Return the pidfd of the sandbox's pid 1, valid inside the context; no process of the run outlives it."""
        return self._launched.pidfd

    @property
    def receipt(self) -> Mapping[str, object]:
        """Return a description of the sandbox."""
        return self._receipt

    @property
    def output_directory(self) -> int:
        """Return a descriptor of `/work/out`, valid from the end of `stream()` to the end of the context."""
        if self._output is None:
            raise SandboxError("The output directory can be read only after the run and before it is closed.")
        return self._output

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._collect()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._output is not None:
                os.close(self._output)
                self._output = None
            self._launched.close()
            self._pipes.close()
        if self._ended and self._reaped is not None and self._reaped.clean:
            self._slots.release(self._pooled)
        else:
            self._slots.discard(self._pooled)

    def _watch(self) -> None:
        deadline = time.monotonic() + self._limits.wall_seconds
        ended = False
        while not ended:
            ended = pidfd.wait_for_exit(
                self._launched.pidfd, max(0.0, min(SAMPLE_INTERVAL_SECONDS, deadline - time.monotonic()))
            )
            reason = None if ended else self._check_limits(deadline)
            if reason is not None:
                self._end(reason)
                pidfd.wait_for_exit(self._launched.pidfd, pidfd.EXIT_TIMEOUT_SECONDS)
                break
        self._ended_at = datetime.now(UTC)

    def _check_limits(self, deadline: float) -> ExitReason | None:
        if time.monotonic() >= deadline:
            return ExitReason.TIMEOUT
        # a namespace that is just ending may be unreadable; the time limit applies in any case
        with contextlib.suppress(OSError):
            if self._meter.exceeded() or self._storage.exceeded():
                return ExitReason.OUT_OF_MEMORY
        return None

    def _end(self, reason: ExitReason) -> None:
        with self._lock:
            if self._closed or pidfd.wait_for_exit(self._launched.pidfd, 0):
                return
            self._kill_reason = self._kill_reason or reason
            pidfd.kill(self._launched.pidfd)
        if self._pooled.cgroup is not None:
            with contextlib.suppress(OSError):
                self._pooled.cgroup.end()  # exiting takes CPU time as well, and a small quota would delay it

    def _relay(self, on_output: Callable[[Stream, bytes], None], on_progress: Callable[[bytes], None]) -> bool:
        """Relay output until the run ends and the pipes are empty; return whether output was discarded."""
        left = self._limits.output_bytes
        truncated = False
        streams = {self._pipes.stdout: Stream.STDOUT, self._pipes.stderr: Stream.STDERR}
        sources = {*streams, self._pipes.progress}
        poll = select.poll()
        for descriptor in (*sources, self._launched.pidfd):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(1000)]
            ended = self._launched.pidfd in ready
            for descriptor in list(sources) if ended else ready:
                data = read_chunk(descriptor)
                if not data:
                    if ended or data == b"":
                        poll.unregister(descriptor)
                        sources.remove(descriptor)
                elif descriptor in streams:
                    truncated = truncated or len(data) > left
                    if left:
                        on_output(streams[descriptor], data[:left])
                    left = max(0, left - len(data))
                else:
                    on_progress(data)
            if ended and not sources:
                return truncated
            # Check the pidfd again: the run and its watcher may both have ended since the poll.
            if not (ready or self._watcher.is_alive() or pidfd.wait_for_exit(self._launched.pidfd, 0)):
                raise SandboxError(
                    f"The sandbox of process {self.pid} cannot be killed: inspect the process on the host."
                )

    def _collect(self) -> None:
        """Collect the usage of the ended run and open its output directory."""
        if self._reaped is not None:
            return
        self._watcher.join(timeout=2 * pidfd.EXIT_TIMEOUT_SECONDS)
        self._ended = pidfd.wait_for_exit(self._launched.pidfd, 0)
        if self._uplink is not None:
            self._uplink.close()
        with contextlib.suppress(OSError):
            self._storage.exceeded()
            self._usage = self._meter.usage()
        if self._pooled.cgroup is not None:
            with contextlib.suppress(OSError):
                self._pooled.cgroup.end()
        self._reaped = self._pooled.slot.reap(self._launched)
        self._output = self._launched.open_output()

    def _outcome(self, *, truncated: bool) -> Outcome:
        reaped = self._reaped or ReapResult()
        exit_code = parse_exit_code(read_all(self._pipes.status))
        # The death of a slot kills its run, which is not the program's fault.
        killed_with_slot = reaped.slot_died and not self._usage.out_of_memory
        end = classify_exit(
            kill_reason=self._kill_reason or (ExitReason.KILLED if killed_with_slot else None),
            exit_code=exit_code,
            out_of_memory=self._usage.out_of_memory,
            not_executed=reaped.monitor_failed,
        )
        cpu_seconds = self._usage.cpu_seconds
        return Outcome(
            reason=end.reason,
            exit_code=end.exit_code,
            signal=end.signal,
            started_at=self._started_at,
            ended_at=self._ended_at,
            cpu_seconds=reaped.cpu_seconds if cpu_seconds is None else cpu_seconds,
            peak_memory_bytes=self._usage.peak_memory_bytes,
            peak_disk_bytes=self._storage.peak_bytes,
            output_truncated=truncated,
            receipt=self._receipt,
        )
