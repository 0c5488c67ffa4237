"""The deadline of all runs: the worker writes it, and the kernel enforces it.

Invariant: every slot with a run has a kernel timer that kills the slot at the deadline, and with it the run
(bubblewrap's `--die-with-parent`). Only the slot itself can postpone the timer, after reading a later deadline, so the
run ends in time even if the worker, its guardian, its launcher and the slot are frozen. While it has a run, the slot
also holds a shared lock on a file of the worker, by which a restarted worker detects remaining runs.

Loaded by `launcher_process`, hence the standard library only. Deadlines are on CLOCK_BOOTTIME, in seconds.
"""

import ctypes
import fcntl
import math
import mmap
import os
import signal
import struct
import time
import weakref

DEADLINE = struct.Struct("@q")  # nanoseconds; native and aligned, so that reads and writes are atomic
NO_DEADLINE = 2**63 - 1
NANOSECONDS = 10**9
MAX_CHECK_SECONDS = 5.0  # between two reads of the deadline
MIN_CHECK_SECONDS = 0.05

CLOCK_BOOTTIME = 7  # includes suspend, as leases do
SIGEV_SIGNAL, TIMER_ABSTIME = 0, 1
SIGEVENT = struct.Struct("@Qii48x")  # value, signal, kind of notification
ITIMERSPEC = struct.Struct("@qqqq")  # interval and expiry, each in seconds and nanoseconds
SYSCALLS = {"x86_64": (222, 223), "aarch64": (107, 110)}  # timer_create, timer_settime


class Deadline:
    """The worker's end: a memory page that all slots can read; initially without a deadline."""

    def __init__(self, runs: os.PathLike[str] | None = None) -> None:
        """`runs`: the file that slots lock; None: a file that is not shared."""
        file = os.memfd_create("punctual-deadline", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, DEADLINE.size)
            self._page = mmap.mmap(file, DEADLINE.size)
            self.descriptor = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(file)
        weakref.finalize(self, os.close, self.descriptor)
        self.runs = os.dup(self.descriptor) if runs is None else open_runs_file(runs)
        weakref.finalize(self, os.close, self.runs)
        self.set(math.inf)

    def set(self, deadline: float) -> None:
        DEADLINE.pack_into(self._page, 0, NO_DEADLINE if deadline == math.inf else int(deadline * NANOSECONDS))


class Timer:
    """The slot's end: one per process, as a fork does not inherit timers."""

    def __init__(self, descriptor: int, runs: int) -> None:
        """`runs` must be opened by this process: processes that inherit a descriptor share its lock."""
        self._runs = runs
        self._page = mmap.mmap(descriptor, DEADLINE.size, prot=mmap.PROT_READ)
        self._create, self._settime = SYSCALLS[os.uname().machine]
        self._id = ctypes.c_int()
        self._armed: int | None = None
        event = SIGEVENT.pack(0, signal.SIGKILL, SIGEV_SIGNAL)
        _syscall(self._create, CLOCK_BOOTTIME, event, ctypes.byref(self._id))

    def arm(self) -> None:
        """Kill this process at the deadline; if that has passed, this does not return."""
        self._set(DEADLINE.unpack_from(self._page)[0])

    def disarm(self) -> None:
        self._set(NO_DEADLINE)
        self._armed = None

    def follow(self) -> float | None:
        """Adopt a new deadline; return the seconds until the next call, None while not armed.

        That is half of the remaining time, so that a slot with little CPU time still renews in time.
        """
        if self._armed is None:
            return None
        if DEADLINE.unpack_from(self._page)[0] != self._armed:
            self.arm()
        left = (self._armed - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / NANOSECONDS
        return min(max(left / 2, MIN_CHECK_SECONDS), MAX_CHECK_SECONDS)

    def _set(self, deadline: int) -> None:
        self._armed = deadline
        # Raises if a restarted worker has the lock: then this process exits, and its run with it.
        fcntl.flock(self._runs, fcntl.LOCK_UN if deadline == NO_DEADLINE else fcntl.LOCK_SH | fcntl.LOCK_NB)
        # All zeros or a time before boot would disarm the timer.
        expiry = (0, 0) if deadline == NO_DEADLINE else divmod(max(deadline, 1), NANOSECONDS)
        _syscall(self._settime, self._id, TIMER_ABSTIME, ITIMERSPEC.pack(0, 0, *expiry), None)


def open_runs_file(path: os.PathLike[str]) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def wait_for_runs(path: os.PathLike[str], seconds: float) -> bool:
    """Wait until no run of a previous worker process is left; return False on timeout. Call it before the first run."""
    give_up_at = time.monotonic() + seconds
    descriptor = open_runs_file(path)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    return False
                time.sleep(MIN_CHECK_SECONDS)
            else:
                return True
    finally:
        os.close(descriptor)


def _syscall(number: int, *arguments: object) -> None:
    if _libc.syscall(number, *arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"the timer of a slot: {os.strerror(error)}")


_libc = ctypes.CDLL(None, use_errno=True)
