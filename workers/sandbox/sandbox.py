"""Builds the sandbox of a program and starts it.

Invariant: the program executes no instruction before its namespaces are verified as private and every limit is in
force; if any step fails, nothing of the sandbox remains.
"""

import os
import platform
import resource
import stat
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from workers.sandbox.bubblewrap import command_line
from workers.sandbox.errors import SandboxError
from workers.sandbox.host import Host
from workers.sandbox.memory_files import memory_file, sealed_copy
from workers.sandbox.metering import CgroupMeter, ProcessMeter
from workers.sandbox.network.rules import Blocklist
from workers.sandbox.network.uplink import Uplink
from workers.sandbox.pidfd import kill_and_wait
from workers.sandbox.pipes import Pipes, read_all
from workers.sandbox.run import Run
from workers.sandbox.seccomp import compiler
from workers.sandbox.slots.deadline import Deadline
from workers.sandbox.slots.launcher import BuiltSandbox, Launcher
from workers.sandbox.slots.pool import PooledSlot, SlotPool
from workers.sandbox.slots.slot_process import FIRST_DESCRIPTOR, INFO_DESCRIPTOR
from workers.sandbox.validation import validate
from workers.sandbox.values import WORK_DIRECTORY, Limits, Program

REQUIRED_NAMESPACES = frozenset(command_line.NAMESPACES) - {"cgroup"}  # some kernels are built without it
MAX_SLOT_TRIES = 3
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC
NPROC_PER_NAMESPACE_SINCE = (5, 14)  # before this Linux, RLIMIT_NPROC counted every process of the uid on the host


class Sandbox:
    """Starts runs on this host; one per worker, shared by all of its threads."""

    def __init__(self, host: Host, inputs: Path | None = None, runs: Path | None = None) -> None:
        """`inputs`: directory of files that can become standard input without a copy.

        `runs`: file that is locked while runs exist; see `wait_for_runs`.
        """
        self._host = host
        # The files of a root worker belong to another user than the runs, which needs no read-only mount.
        self._inputs = inputs if host.users is None else None
        self._own_root = command_line.own_root_arguments()
        self._filter = compiler.compile_host_filter(memory_is_metered=host.memory_is_metered)
        self._libraries = command_line.private_libraries(host.bwrap)
        self._deadline = Deadline(runs)
        launcher = Launcher(host.bwrap, host.users, self._deadline)
        self._slots = SlotPool(
            launcher, host.cgroups, share=host.slots_share, resolver_file=host.resolver_file, inputs=self._inputs
        )
        self._finalizer = weakref.finalize(self, self._slots.close)

    def prepare(self, runs: int) -> None:
        """Start this many slots ahead of the first runs."""
        self._slots.prepare(runs)

    def set_deadline(self, moment: float) -> None:
        """Set when the kernel kills all runs, on CLOCK_BOOTTIME, unless a later deadline is set in time."""
        self._deadline.set(moment)

    def close(self) -> None:
        """End the slots and their runs; also happens when the worker exits."""
        self._finalizer()

    def start(self, program: Program, limits: Limits, before_release: Callable[[Run], None] = lambda run: None) -> Run:
        """Build the sandbox and start the program; raise SandboxError if it cannot be built.

        `before_release` gets the run before the program's first instruction; if it raises, the program does not start.
        """
        validate(program, limits)
        try:
            with ExitStack() as undo:
                run = self._build(program, limits, undo)
                undo.callback(run.disown)
                before_release(run)
                run.release()
                undo.pop_all()
        except OSError as error:
            raise SandboxError(f"The sandbox could not be built: {error}") from error
        return run

    def _build(self, program: Program, limits: Limits, undo: ExitStack) -> Run:
        blocklist = self._blocklist(program)
        pooled = self._take(replace(limits, processes=limits.processes + 1) if blocklist else limits)
        undo.callback(self._slots.discard, pooled)
        pipes = Pipes.open(pooled.slot.uid)
        undo.callback(pipes.close)
        launched = self._launch(pooled, program, limits, pipes, blocklist)
        undo.callback(launched.close)
        undo.callback(kill_and_wait, launched.pidfd)
        shared = REQUIRED_NAMESPACES - set(launched.namespaces)
        if shared:
            raise SandboxError(f"The sandbox shares namespaces with the host: {', '.join(sorted(shared))}.")
        uplink = self._connect(pooled) if blocklist else None
        if uplink is not None:
            undo.callback(uplink.close)
        return Run(
            launched=launched,
            uplink=uplink,
            slots=self._slots,
            pooled=pooled,
            pipes=pipes,
            limits=limits,
            meter=CgroupMeter(pooled.cgroup, limits) if pooled.cgroup else ProcessMeter(launched.proc, limits),
            receipt=self._host.receipt(
                launched.namespaces, limits, os.getuid() if pooled.slot.uid is None else pooled.slot.uid, blocklist
            ),
        )

    def _take(self, limits: Limits) -> PooledSlot:
        """Take a slot and apply the limits; discard slots that already use more memory."""
        for _ in range(MAX_SLOT_TRIES):
            pooled = self._slots.take()
            try:
                if pooled.cgroup is not None:
                    pooled.cgroup.limit(limits)
            except OSError as error:
                self._slots.discard(pooled)
                failure = error
                continue
            return pooled
        raise failure

    def _blocklist(self, program: Program) -> Blocklist | None:
        if not program.network:
            return None
        if self._host.network is None:
            raise SandboxError(
                "This worker has no network for runs: set PUNCTUAL_WORKER_NETWORK, and see the worker's details."
            )
        return self._host.network.current_blocklist()

    def _connect(self, pooled: PooledSlot) -> Uplink | None:
        """Connect the slot to a network; slirp4netns joins the run's cgroup, so its usage counts as the run's."""
        if self._host.network is None:
            return None
        join = pooled.cgroup.add if pooled.cgroup is not None else None
        return Uplink.connect(self._host.network, pooled.slot.pid, pooled.slot.uid, join)

    def _open_stdin(self, pooled: PooledSlot, source: int | None) -> tuple[int, int]:
        """Return a descriptor for standard input, and how many bytes of the worker's memory a copy takes.

        The file itself is used if the run cannot change it, else a copy: through /proc/self/fd a program can reopen its
        standard input, and the owner of the file could write to it or change its mode.
        """
        if source is None:
            return os.open(os.devnull, OPEN_FLAGS), 0
        path = f"/proc/self/fd/{source}"
        if pooled.slot.uid is not None and _is_read_only(os.fstat(source)):
            return os.open(path, OPEN_FLAGS), 0
        if self._inputs is not None and pooled.slot.shares:
            opened = pooled.slot.open_input(os.path.basename(os.readlink(path)), source)
            if opened is not None:
                return opened, 0
        copy = sealed_copy(source)
        return copy, os.fstat(copy).st_size

    def _launch(
        self, pooled: PooledSlot, program: Program, limits: Limits, pipes: Pipes, blocklist: Blocklist | None
    ) -> BuiltSandbox:
        with ExitStack() as lent:
            lent.callback(pipes.close_far_ends)
            stdin, copied = self._open_stdin(pooled, program.stdin)
            lent.callback(os.close, stdin)
            descriptors = [stdin, pipes.stdout_far, pipes.stderr_far, pipes.progress_far]

            def lend(descriptor: int) -> int:
                descriptors.append(descriptor)
                return FIRST_DESCRIPTOR + len(descriptors) - 1

            def lend_own(descriptor: int) -> int:
                lent.callback(os.close, descriptor)
                return lend(descriptor)

            shares, environment = pooled.slot.shares, {}
            arguments = command_line.isolation_arguments(slot_shares=shares)
            if shares:
                arguments += command_line.shared_root_arguments()
            else:
                # a copy of bubblewrap does not find its libraries, and its uid cannot read those in root's home
                libraries = [lend_own(os.open(path, OPEN_FLAGS)) for path in self._libraries]
                environment = _preload(libraries)
                arguments += self._own_root
                arguments += [part for library in libraries for part in command_line.hidden_file_arguments(library)]
                for destination, content in command_line.SYNTHETIC_FILES.items():
                    file = lend_own(memory_file(content.encode()))
                    arguments += command_line.file_arguments(file, destination, mode=0o444)
            arguments += [
                *command_line.writable_arguments(limits, copied),
                *_file_arguments(program, lend_own),
                *command_line.remount_arguments(slot_shares=shares),
                *command_line.environment_arguments(program.environment),
                *("--info-fd", str(INFO_DESCRIPTOR), "--block-fd", str(lend(pipes.hold_far))),
                *("--json-status-fd", str(lend(pipes.status_far))),
                # one file per run: bubblewrap reads from the offset
                *("--seccomp", str(lend_own(memory_file(self._filter)))),
            ]
            argument_file = lend_own(memory_file(b"".join(os.fsencode(part) + b"\0" for part in arguments)))
            argv = ["bwrap", "--args", str(argument_file), "--", *program.argv]
            try:
                return pooled.slot.launch(argv, environment, _rlimits(limits), descriptors, blocklist=blocklist)
            except SandboxError as error:
                lines = read_all(pipes.stderr).decode(errors="replace").strip().splitlines()
                raise SandboxError(f"The sandbox could not be built: {lines[0] if lines else error}") from error


def _is_read_only(status: os.stat_result) -> bool:
    """Return whether the worker owns the file and all other users can only read it."""
    return status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o026 == 0o004


def _preload(libraries: list[int]) -> dict[str, str]:
    """Return bubblewrap's own environment; the program does not get it."""
    return {"LD_PRELOAD": ":".join(f"/proc/self/fd/{number}" for number in libraries)} if libraries else {}


def _file_arguments(program: Program, lend_own: Callable[[int], int]) -> list[str]:
    arguments = []
    for file in program.files:
        # reopened: bubblewrap reads from the offset, which duplicated descriptors share
        descriptor = lend_own(os.open(f"/proc/self/fd/{file.descriptor}", OPEN_FLAGS))
        mode = 0o400 if file.private else 0o755 if file.executable else 0o644
        arguments += command_line.file_arguments(descriptor, f"{WORK_DIRECTORY}/{file.path}", mode=mode)
    return arguments


def _rlimits(limits: Limits) -> list[tuple[int, int]]:
    rlimits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        # above the size of /work: programs can handle a full disk, but not SIGXFSZ
        (resource.RLIMIT_FSIZE, limits.disk_bytes + 64 * 1024),
        (resource.RLIMIT_MEMLOCK, 64 * 1024),
        (resource.RLIMIT_MSGQUEUE, 819_200),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
        # counted per user: one run must not take all signals from the timers of other slots
        (resource.RLIMIT_SIGPENDING, 1024),
    ]
    major, minor = platform.release().split(".")[:2]
    if (int(major), int("".join(c for c in minor if c.isdigit()))) >= NPROC_PER_NAMESPACE_SINCE:
        rlimits.append((resource.RLIMIT_NPROC, limits.processes + 1))  # plus bubblewrap's pid 1
    return rlimits
