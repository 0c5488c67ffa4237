"""Builds one sandbox for one program and lets it go.

Invariant: the program does not execute an instruction before its namespaces were seen to be private and
every limit is in force; if any step fails, nothing of the sandbox remains.
"""

import os
import platform
import resource
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from workers.sandbox import bubblewrap, seccomp
from workers.sandbox.errors import SandboxError
from workers.sandbox.host import Host
from workers.sandbox.launcher import Launched, Launcher, memory_file, sealed_copy
from workers.sandbox.metering import CgroupMeter, ProcessMeter
from workers.sandbox.network import Uplink
from workers.sandbox.network_rules import Blocks
from workers.sandbox.pidfd import kill_and_wait
from workers.sandbox.pipes import Pipes, read_all
from workers.sandbox.run import Run
from workers.sandbox.slot_process import FIRST_DESCRIPTOR, INFO_DESCRIPTOR
from workers.sandbox.slots import Place, Slots
from workers.sandbox.validation import validate
from workers.sandbox.values import WORK, Limits, Program

REQUIRED_NAMESPACES = frozenset(bubblewrap.NAMESPACES) - {"cgroup"}  # a kernel may be built without that one
TAKEN_AT_MOST = 3
OPENING = os.O_RDONLY | os.O_CLOEXEC
PER_NAMESPACE_NPROC = (5, 14)  # before this Linux, RLIMIT_NPROC counted every process of the uid on the host


class Sandbox:
    """Starts runs on this host; one for a worker, used by all of its threads."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._own_root = bubblewrap.own_root_arguments()
        self._filter = seccomp.program(memory_is_metered=host.memory_is_metered)
        self._libraries = bubblewrap.private_libraries(host.bwrap)
        launcher = Launcher(host.bwrap, host.drop_uid, host.drop_gid)
        self._slots = Slots(launcher, host.cgroups, share=host.slots_share, resolver_file=host.resolver_file)
        self._finalizer = weakref.finalize(self, self._slots.close)

    def prepare(self, runs: int) -> None:
        """Be ready for so many at once, so that the first ones need not wait."""
        self._slots.prepare(runs)

    def close(self) -> None:
        """End the slots and whatever still runs; done by itself when the worker leaves."""
        self._finalizer()

    def start(self, program: Program, limits: Limits, before_release: Callable[[Run], None] = lambda run: None) -> Run:
        """Build the sandbox and let the program go; raise SandboxError if it cannot be built.

        `before_release` gets the run while the program waits for its first instruction; if it raises, there is none.
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
        blocks = self._blocks(program)
        place = self._take(replace(limits, processes=limits.processes + 1) if blocks else limits)
        undo.callback(self._slots.give_up, place)
        pipes = Pipes.open(self._host.drop_uid)
        undo.callback(pipes.close)
        launched = self._launch(place, program, limits, pipes, blocks)
        undo.callback(launched.close)
        undo.callback(kill_and_wait, launched.pidfd)
        shared = REQUIRED_NAMESPACES - set(launched.namespaces)
        if shared:
            raise SandboxError(f"The sandbox shares namespaces with the host: {', '.join(sorted(shared))}.")
        uplink = self._connect(place, launched) if blocks else None
        if uplink is not None:
            undo.callback(uplink.close)
        return Run(
            launched=launched,
            uplink=uplink,
            slots=self._slots,
            place=place,
            pipes=pipes,
            limits=limits,
            meter=CgroupMeter(place.cgroup, limits) if place.cgroup else ProcessMeter(launched.proc, limits),
            receipt=self._host.receipt(launched.namespaces, limits, blocks),
        )

    def _take(self, limits: Limits) -> Place:
        """A slot that is held to these limits; one whose memory cannot be brought below them is given up."""
        for _ in range(TAKEN_AT_MOST):
            place = self._slots.take()
            try:
                if place.cgroup is not None:
                    place.cgroup.limit(limits)
            except OSError as error:
                self._slots.give_up(place)
                failure = error
                continue
            return place
        raise failure

    def _blocks(self, program: Program) -> Blocks | None:
        if not program.network:
            return None
        if self._host.network is None:
            raise SandboxError("This worker gives no run a network: set PUNCTUAL_WORKER_NETWORK, and see its details.")
        return self._host.network.blocks_now()

    def _connect(self, place: Place, launched: Launched) -> Uplink | None:
        """In the cgroup of the run: what it sends and keeps is the run's doing."""
        if self._host.network is None:
            return None
        user, net = launched.network
        ids = (self._host.drop_uid, self._host.drop_gid)
        join = place.cgroup.add if place.cgroup is not None else None
        return Uplink.connect(self._host.network, (user, net), ids, join)

    def _launch(self, place: Place, program: Program, limits: Limits, pipes: Pipes, blocks: Blocks | None) -> Launched:
        with ExitStack() as lent:
            lent.callback(pipes.close_far_ends)
            stdin = os.open(os.devnull, OPENING) if program.stdin is None else sealed_copy(program.stdin)
            lent.callback(os.close, stdin)
            descriptors = [stdin, pipes.stdout_far, pipes.stderr_far, pipes.progress_far]

            def lend(descriptor: int) -> int:
                descriptors.append(descriptor)
                return FIRST_DESCRIPTOR + len(descriptors) - 1

            def lend_own(descriptor: int) -> int:
                lent.callback(os.close, descriptor)
                return lend(descriptor)

            shares, environment = place.slot.shares, {}
            arguments = bubblewrap.isolation_arguments(slot_shares=shares)
            if shares:
                arguments += bubblewrap.shared_root_arguments()
            else:
                # a copy of bubblewrap has no libraries beside it, and those in root's home are closed to its uid
                libraries = [lend_own(os.open(path, OPENING)) for path in self._libraries]
                environment = _preload(libraries)
                arguments += self._own_root
                arguments += [part for library in libraries for part in bubblewrap.hidden_file_arguments(library)]
                for destination, content in bubblewrap.SYNTHETIC_FILES.items():
                    file = lend_own(memory_file(content.encode()))
                    arguments += bubblewrap.file_arguments(file, destination, mode=0o444)
            arguments += [
                *bubblewrap.writable_arguments(limits),
                *_file_arguments(program, lend_own),
                *bubblewrap.closing_arguments(slot_shares=shares),
                *bubblewrap.environment_arguments(program.environment),
                *("--info-fd", str(INFO_DESCRIPTOR), "--block-fd", str(lend(pipes.hold_far))),
                *("--json-status-fd", str(lend(pipes.status_far))),
                # a file of its own for each run: bubblewrap reads from the offset
                *("--seccomp", str(lend_own(memory_file(self._filter)))),
            ]
            listed = lend_own(memory_file(b"".join(os.fsencode(part) + b"\0" for part in arguments)))
            argv = ["bwrap", "--args", str(listed), "--", *program.argv]
            try:
                return place.slot.launch(
                    argv, environment, _rlimits(limits), descriptors, hold=pipes.hold, blocks=blocks
                )
            except SandboxError as error:
                said = read_all(pipes.stderr).decode(errors="replace").strip().splitlines()
                raise SandboxError(f"The sandbox could not be built: {said[0] if said else error}") from error


def _preload(libraries: list[int]) -> dict[str, str]:
    """Bubblewrap's whole environment; the program gets none of it."""
    return {"LD_PRELOAD": ":".join(f"/proc/self/fd/{number}" for number in libraries)} if libraries else {}


def _file_arguments(program: Program, lend_own: Callable[[int], int]) -> list[str]:
    arguments = []
    for file in program.files:
        # opened anew: bubblewrap reads from the offset, which duplicates of a descriptor share
        descriptor = lend_own(os.open(f"/proc/self/fd/{file.descriptor}", OPENING))
        mode = 0o400 if file.private else 0o755 if file.executable else 0o644
        arguments += bubblewrap.file_arguments(descriptor, f"{WORK}/{file.path}", mode=mode)
    return arguments


def _rlimits(limits: Limits) -> list[tuple[int, int]]:
    rlimits = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        # only sparse files get this far: a full /work is an error a program can handle, SIGXFSZ is not
        (resource.RLIMIT_FSIZE, limits.disk_bytes + 64 * 1024),
        (resource.RLIMIT_MEMLOCK, 64 * 1024),
        (resource.RLIMIT_MSGQUEUE, 819_200),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ]
    major, minor = platform.release().split(".")[:2]
    if (int(major), int("".join(c for c in minor if c.isdigit()))) >= PER_NAMESPACE_NPROC:
        rlimits.append((resource.RLIMIT_NPROC, limits.processes + 1))  # and bubblewrap's pid 1
    return rlimits
