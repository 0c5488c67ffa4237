"""One program that is running in its sandbox.

Invariant: it ends. A watcher thread holds it to its time and memory whatever the reader of its output
does, and it is over when pid 1 of its pid namespace is, for then nothing in it is left.
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
from workers.sandbox.ending import classify_end, exit_code_in
from workers.sandbox.errors import SandboxError
from workers.sandbox.launcher import Launched, Reaped
from workers.sandbox.metering import Meter, StorageMeter
from workers.sandbox.network import Uplink
from workers.sandbox.pipes import Pipes, read_all, read_chunk
from workers.sandbox.slots import Place, Slots
from workers.sandbox.values import EndReason, Limits, Outcome, Stream, Usage

SAMPLE_SECONDS = 0.1


class Run:
    """Returned by `Sandbox.start`; use it as a context manager: leaving it ends and removes everything."""

    def __init__(
        self,
        *,
        launched: Launched,
        uplink: Uplink | None,
        slots: Slots,
        place: Place,
        pipes: Pipes,
        limits: Limits,
        meter: Meter,
        receipt: Mapping[str, object],
    ) -> None:
        self.pid = launched.child
        self._launched = launched
        self._uplink = uplink
        self._slots = slots
        self._place = place
        self._pipes = pipes
        self._limits = limits
        self._meter = meter
        self._storage = StorageMeter(launched.writable, limits)
        self._receipt = receipt
        self._lock = threading.Lock()  # guards _verdict and _closed: kill() comes from any thread
        self._verdict: EndReason | None = None
        self._closed = False
        self._streamed = False
        self._reaped: Reaped | None = None
        self._over = False
        self._usage = Usage(cpu_seconds=None, peak_memory_bytes=None)
        self._output: int | None = None
        self._started_at = self._ended_at = datetime.now(UTC)
        self._watcher = threading.Thread(target=self._watch, name=f"sandbox-{self.pid}", daemon=True)

    def release(self) -> None:
        """Let the program go; called once, by `Sandbox.start`."""
        if self._place.cgroup is not None:
            self._place.cgroup.begin(self._limits)
        self._started_at = datetime.now(UTC)
        self._watcher.start()
        self._pipes.release()

    def disown(self) -> None:
        """It is taken down before it was let go: there is nothing left that `kill()` could mean."""
        with self._lock:
            self._closed = True

    def stream(
        self, on_output: Callable[[Stream, bytes], None], on_progress: Callable[[bytes], None] = lambda data: None
    ) -> Outcome:
        """Hand over the output as it comes and block until the run is over.

        `on_progress` gets what the program writes to its descriptor 3. If either raises, the run is killed and the
        exception goes on. While they are busy the pipes fill and the program waits, but its limits go on being held.
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
            self._settle()
        return self._outcome(truncated=truncated)

    def kill(self) -> None:
        """End the whole tree now, from any thread, as often as you like."""
        self._end(EndReason.KILLED)

    @property
    def pidfd(self) -> int:
        """A descriptor of pid 1 of the sandbox, until the context is left: when that is over, everything in it is."""
        return self._launched.pidfd

    @property
    def receipt(self) -> Mapping[str, object]:
        """What the sandbox is made of; known from the start."""
        return self._receipt

    @property
    def output_directory(self) -> int:
        """A descriptor of `/work/out`, from the end of `stream()` until the context is left."""
        if self._output is None:
            raise SandboxError("The output directory can be read only after the run and before it is closed.")
        return self._output

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._settle()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._output is not None:
                os.close(self._output)
                self._output = None
            self._launched.close()
            self._pipes.close()
        if self._over and self._reaped is not None and self._reaped.clean:
            self._slots.give_back(self._place)
        else:
            self._slots.give_up(self._place)

    def _watch(self) -> None:
        deadline = time.monotonic() + self._limits.wall_seconds
        over = False
        while not over:
            over = pidfd.is_over(self._launched.pidfd, max(0.0, min(SAMPLE_SECONDS, deadline - time.monotonic())))
            reason = None if over else self._breach(deadline)
            if reason is not None:
                self._end(reason)
                pidfd.is_over(self._launched.pidfd, pidfd.DYING_SECONDS)
                break
        self._ended_at = datetime.now(UTC)

    def _breach(self, deadline: float) -> EndReason | None:
        if time.monotonic() >= deadline:
            return EndReason.TIMEOUT
        # a namespace that is just ending may be unreadable; the time limit holds in any case
        with contextlib.suppress(OSError):
            if self._meter.exceeded() or self._storage.exceeded():
                return EndReason.OUT_OF_MEMORY
        return None

    def _end(self, reason: EndReason) -> None:
        with self._lock:
            if self._closed or pidfd.is_over(self._launched.pidfd, 0):
                return
            self._verdict = self._verdict or reason
            pidfd.kill(self._launched.pidfd)
        if self._place.cgroup is not None:
            with contextlib.suppress(OSError):
                self._place.cgroup.end()  # also dying takes time, and a small share of the CPU would draw it out

    def _relay(self, on_output: Callable[[Stream, bytes], None], on_progress: Callable[[bytes], None]) -> bool:
        """Return whether output was discarded.

        The end of the run ends the reading, not the end of the pipes: they then hold all that will come.
        """
        left = self._limits.output_bytes
        truncated = False
        streams = {self._pipes.stdout: Stream.STDOUT, self._pipes.stderr: Stream.STDERR}
        sources = {*streams, self._pipes.progress}
        poll = select.poll()
        for descriptor in (*sources, self._launched.pidfd):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(1000)]
            over = self._launched.pidfd in ready
            for descriptor in list(sources) if over else ready:
                data = read_chunk(descriptor)
                if not data:
                    if over or data == b"":
                        poll.unregister(descriptor)
                        sources.remove(descriptor)
                elif descriptor in streams:
                    truncated = truncated or len(data) > left
                    if left:
                        on_output(streams[descriptor], data[:left])
                    left = max(0, left - len(data))
                else:
                    on_progress(data)
            if over and not sources:
                return truncated
            if not (ready or self._watcher.is_alive()):
                raise SandboxError(f"The sandbox of process {self.pid} does not die: look at it on the host.")

    def _settle(self) -> None:
        """Once the run is over: take its numbers, keep its output directory."""
        if self._reaped is not None:
            return
        self._watcher.join(timeout=2 * pidfd.DYING_SECONDS)
        self._over = pidfd.is_over(self._launched.pidfd, 0)
        if self._uplink is not None:
            self._uplink.close()
        with contextlib.suppress(OSError):
            self._storage.exceeded()
            self._usage = self._meter.usage()
        if self._place.cgroup is not None:
            with contextlib.suppress(OSError):
                self._place.cgroup.end()
        self._reaped = self._place.slot.reap(self._launched)
        self._output = self._launched.open_output()

    def _outcome(self, *, truncated: bool) -> Outcome:
        reaped = self._reaped or Reaped()
        exit_code = exit_code_in(read_all(self._pipes.status))
        # A slot that dies takes its run along: that is not the program's doing.
        fell_with_slot = reaped.slot_gone and not self._usage.out_of_memory
        end = classify_end(
            verdict=self._verdict or (EndReason.KILLED if fell_with_slot else None),
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
