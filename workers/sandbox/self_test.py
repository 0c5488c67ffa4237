"""Tries to get out of this host's own sandbox, so that a worker knows what it promises.

Invariant: what did not answer was not tried, and counts neither as held nor as failed. All that is said of a failure is
what the probe saw, never what it could read.
"""

import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from workers.sandbox import seccomp
from workers.sandbox.errors import SandboxError
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import EndReason, Limits, Outcome, Program, Stream

# Every probe, in the words of what holds if it gets nowhere.
WITH_A_SHELL: Mapping[str, str] = {
    "standing": "sandboxes can be built",
    "host-files": "the host's files are out of sight",
    "worker-directory": "the worker's own directory is out of sight",
    "host-processes": "the host's processes are out of sight",
    "environment": "the worker's environment cannot be read",
    "descriptors": "nothing of the worker's is left open",
    "privileges": "there are no capabilities and no way to get any, and a filter of system calls",
    "writing": "the system cannot be written to",
    "interfaces": "there is no network interface",
    "disk": "the limit of disk holds",
    "memory": "the limit of memory holds",
}
WITH_A_PYTHON: Mapping[str, str] = {
    "mounting": "nothing can be mounted",
    "namespaces": "no namespace can be made",
    "tracing": "processes cannot be traced",
    "keyrings": "the kernel's keyrings cannot be used",
    "kernel-interfaces": "io_uring, bpf, perf, userfaultfd and file handles cannot be used",
    "odd-sockets": "there are only ordinary sockets",
    "set-id-bits": "no set-user-id file can be made",
    "device-nodes": "no device can be made",
    "network": "the worker's loopback cannot be reached",
    "processes": "the limit of processes holds",
    "unseen-memory": "the limit of memory holds also for what no process shows",
}
PROBES: Mapping[str, str] = {**WITH_A_SHELL, **WITH_A_PYTHON}

# What the probes need the numbers of; they are others on every architecture.
CALLS = (
    *("add_key", "bpf", "clone", "clone3", "fsopen", "io_uring_setup", "keyctl", "open_by_handle_at", "open_tree"),
    *("perf_event_open", "process_vm_readv", "userfaultfd"),
)
HELD = "held"
MEBIBYTE = 1024 * 1024
DISK_BYTES = MEBIBYTE
PROCESSES = 16
# Long, because a machine that has just started is busy, and what is late was not tried.
LOOKING = Limits(wall_seconds=30, memory_bytes=256 * MEBIBYTE, disk_bytes=DISK_BYTES, cpus=1, processes=PROCESSES)
HUNGRY = Limits(wall_seconds=30, memory_bytes=16 * MEBIBYTE, disk_bytes=MEBIBYTE, cpus=1, processes=PROCESSES)
SECRETLY_HUNGRY = replace(HUNGRY, memory_bytes=32 * MEBIBYTE)  # a Python has to fit
# Kept until it is killed: where there are no cgroups, memory is only looked at now and then.
HUNGER = "{ head -c 50000000 /dev/zero; sleep 5; } | tail > /dev/null"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
MAX_SEEN = 200
HERE = Path(__file__).parent


@dataclass(frozen=True)
class SelfTest:
    held: tuple[str, ...]
    failed: Mapping[str, str]  # and what was seen instead
    untried: tuple[str, ...]
    memory_is_metered: bool  # by the kernel; else a burst, or the buffers of sockets, can be more than the limit

    @property
    def trustworthy(self) -> bool:
        return not self.failed and not self.untried and self.memory_is_metered

    def in_short(self) -> dict[str, object]:
        """For people to read, ready for JSON."""
        return {"held": len(self.held), "failed": dict(self.failed), "not_tried": list(self.untried)}

    @property
    def problem(self) -> str:
        """One sentence for whoever looks after the host; empty if nothing failed."""
        if not self.failed:
            return ""
        seen = "; ".join(f"{name} ({words})" for name, words in self.failed.items())
        return f"The sandbox of this host does not hold: {seen}."

    @property
    def shortcoming(self) -> str:
        """The same, and what else keeps it from being trusted with everything."""
        untried = f"Not tried (most need a Python in /usr): {', '.join(self.untried)}." if self.untried else ""
        sampled = "" if self.memory_is_metered else "Without cgroups, memory is only looked at ten times a second."
        return " ".join(part for part in (self.problem, untried, sampled) if part)


def run_self_test(sandbox: Sandbox, *, worker_directory: Path, python: str | None, memory_is_metered: bool) -> SelfTest:
    """`python`: where there is one inside the sandbox. `memory_is_metered`: as the host says."""
    seen = _try_all(sandbox, worker_directory, python)
    if seen["standing"] != HELD:
        # Not a hole, and perhaps only a machine that is too busy to build one in time.
        seen = _try_all(sandbox, worker_directory, python)
    return judge(seen, memory_is_metered=memory_is_metered)


def _try_all(sandbox: Sandbox, worker_directory: Path, python: str | None) -> dict[str, str]:
    with ThreadPoolExecutor(3) as pool:
        tries = [
            pool.submit(_look_around, sandbox, worker_directory, python),
            pool.submit(_eat, sandbox, "memory", ("/bin/sh", "-c", HUNGER), HUNGRY),
        ]
        if python is not None:
            argv = (python, "-I", "-S", "-c", (HERE / "probe_hunger.py").read_text())
            tries.append(pool.submit(_eat, sandbox, "unseen-memory", argv, SECRETLY_HUNGRY))
        return {name: words for each in tries for name, words in each.result().items()}


def judge(seen: Mapping[str, str], *, memory_is_metered: bool = True) -> SelfTest:
    """`seen`: what each probe that was tried said."""
    failed = {name: words[:MAX_SEEN] for name, words in seen.items() if words != HELD}
    held = tuple(name for name in PROBES if seen.get(name) == HELD)
    untried = tuple(name for name in PROBES if name not in seen)
    return SelfTest(held, failed, untried, memory_is_metered)


def read_answers(lines: Iterable[str]) -> dict[str, str]:
    """What a probe says that nobody knows is not heard: it would be a fault of the program, not of the host."""
    answers = (line.strip().partition(" ") for line in lines)
    return {name: words.strip() for name, _, words in answers if name in PROBES}


def _look_around(sandbox: Sandbox, worker_directory: Path, python: str | None) -> dict[str, str]:
    with ExitStack() as open_here:
        listener = open_here.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = f"punctual-{uuid.uuid4()}"
        hidden = open_here.enter_context(socket.socket(socket.AF_UNIX))
        hidden.bind("\0" + abstract)
        hidden.listen()
        known = {
            "calls": seccomp.numbers(CALLS),
            "port": listener.getsockname()[1],
            "abstract": abstract,
            "processes": PROCESSES,
        }
        began = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        argv = (
            *("/bin/sh", "-c", (HERE / "probe.sh").read_text(), "sh", str(began), str(worker_directory)),
            *(str(DISK_BYTES), python or "", (HERE / "probe_program.py").read_text(), json.dumps(known)),
        )
        try:
            said, _ = _run(sandbox, argv, LOOKING)
        except SandboxError as error:
            return {"standing": str(error)}
    return {"standing": HELD, **read_answers(said.splitlines())}


def _eat(sandbox: Sandbox, name: str, argv: tuple[str, ...], limits: Limits) -> dict[str, str]:
    try:
        said, outcome = _run(sandbox, argv, limits)
    except SandboxError as error:
        return {"standing": str(error)}
    if outcome.reason is EndReason.OUT_OF_MEMORY or said.strip() == HELD:
        return {name: HELD}
    if outcome.reason is not EndReason.EXIT:
        return {}  # something else ended it before it had what it wanted
    return {name: said.strip() or "it had much more than the limit"}


def _run(sandbox: Sandbox, argv: tuple[str, ...], limits: Limits) -> tuple[str, Outcome]:
    said = bytearray()

    def listen(stream: Stream, data: bytes) -> None:
        if stream is Stream.STDOUT:
            said.extend(data)

    with sandbox.start(Program(argv, ENVIRONMENT), limits) as run:
        outcome = run.stream(listen)
    return said.decode(errors="replace"), outcome
