"""Self-test of this host's sandbox: runs probes that try to break out of it.

Invariant: a probe without a result counts as not tried, neither as held nor as failed. Findings name what a probe could
access, but never contain the data.
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

from workers.sandbox.errors import SandboxError
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.seccomp import compiler
from workers.sandbox.values import MIB, ExitReason, Limits, Outcome, Program, Stream

# Every probe, with the property that it tests.
SHELL_PROBES: Mapping[str, str] = {
    "building": "sandboxes can be built",
    "host-files": "the host's files are hidden",
    "worker-directory": "the worker's own directory is hidden",
    "host-processes": "the host's processes are hidden",
    "environment": "the worker's environment cannot be read",
    "descriptors": "no descriptor of the worker is open",
    "privileges": "capabilities cannot be gained, and a system call filter is active",
    "writing": "the system cannot be written to",
    "interfaces": "there is no network interface",
    "disk": "the disk limit holds",
    "memory": "the memory limit holds",
}
PYTHON_PROBES: Mapping[str, str] = {
    "mounting": "nothing can be mounted",
    "namespaces": "no namespace can be created",
    "tracing": "processes cannot be traced",
    "keyrings": "the kernel's keyrings cannot be used",
    "kernel-interfaces": "io_uring, bpf, perf, userfaultfd and file handles cannot be used",
    "odd-sockets": "unusual sockets cannot be created",
    "set-id-bits": "no set-user-id file can be created",
    "device-nodes": "no device can be created",
    "network": "the worker's loopback cannot be reached",
    "processes": "the process limit holds",
    "unseen-memory": "the memory limit also holds for memory outside of processes",
}
PROBES: Mapping[str, str] = {**SHELL_PROBES, **PYTHON_PROBES}

# The probes need their numbers, which differ between architectures.
PROBED_SYSCALLS = (
    *("add_key", "bpf", "clone", "clone3", "fsopen", "io_uring_setup", "keyctl", "open_by_handle_at", "open_tree"),
    *("perf_event_open", "process_vm_readv", "userfaultfd"),
)
HELD = "held"
DISK_BYTES = MIB
MAX_PROCESSES = 16
# Long, because a machine that has just started is busy, and a timeout means "not tried".
PROBE_LIMITS = Limits(wall_seconds=30, memory_bytes=256 * MIB, disk_bytes=DISK_BYTES, cpus=1, processes=MAX_PROCESSES)
MEMORY_PROBE_LIMITS = Limits(wall_seconds=30, memory_bytes=16 * MIB, disk_bytes=MIB, cpus=1, processes=MAX_PROCESSES)
HIDDEN_MEMORY_PROBE_LIMITS = replace(MEMORY_PROBE_LIMITS, memory_bytes=32 * MIB)  # Python has to fit
# Keeps the memory until it is killed: without cgroups, memory is only sampled.
MEMORY_PROBE_SCRIPT = "{ head -c 50000000 /dev/zero; sleep 5; } | tail > /dev/null"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
MAX_FINDING_CHARACTERS = 200
HERE = Path(__file__).parent


@dataclass(frozen=True)
class SelfTestResult:
    held: tuple[str, ...]
    failed: Mapping[str, str]  # probe and finding
    not_tried: tuple[str, ...]
    memory_is_metered: bool  # by the kernel; otherwise a burst or socket buffers can exceed the limit

    @property
    def trustworthy(self) -> bool:
        return not self.failed and not self.not_tried and self.memory_is_metered

    def summarize(self) -> dict[str, object]:
        """Summarize for the worker's details, ready for JSON."""
        return {"held": len(self.held), "failed": dict(self.failed), "not_tried": list(self.not_tried)}

    @property
    def problem(self) -> str:
        """Return one sentence for the operator, or "" if nothing failed."""
        if not self.failed:
            return ""
        findings = "; ".join(f"{name} ({finding})" for name, finding in self.failed.items())
        return f"The sandbox of this host does not hold: {findings}."

    @property
    def limitation(self) -> str:
        """Return all reasons why the sandbox is not trustworthy."""
        untried = f"Not tried (most need a Python in /usr): {', '.join(self.not_tried)}." if self.not_tried else ""
        sampled = "" if self.memory_is_metered else "Without cgroups, memory is only sampled ten times a second."
        return " ".join(part for part in (self.problem, untried, sampled) if part)


def run_self_test(
    sandbox: Sandbox, *, worker_directory: Path, python: str | None, memory_is_metered: bool
) -> SelfTestResult:
    """Run all probes; `python`: the interpreter's path inside the sandbox, if there is one."""
    findings = _run_probes(sandbox, worker_directory, python)
    if findings["building"] != HELD:
        # The machine may only have been too busy to build a sandbox in time.
        findings = _run_probes(sandbox, worker_directory, python)
    return evaluate_probes(findings, memory_is_metered=memory_is_metered)


def _run_probes(sandbox: Sandbox, worker_directory: Path, python: str | None) -> dict[str, str]:
    with ThreadPoolExecutor(3) as pool:
        tries = [
            pool.submit(_run_isolation_probes, sandbox, worker_directory, python),
            pool.submit(
                _run_memory_probe, sandbox, "memory", ("/bin/sh", "-c", MEMORY_PROBE_SCRIPT), MEMORY_PROBE_LIMITS
            ),
        ]
        if python is not None:
            argv = (python, "-I", "-S", "-c", (HERE / "probe_hunger.py").read_text())
            tries.append(pool.submit(_run_memory_probe, sandbox, "unseen-memory", argv, HIDDEN_MEMORY_PROBE_LIMITS))
        return {name: finding for each in tries for name, finding in each.result().items()}


def evaluate_probes(findings: Mapping[str, str], *, memory_is_metered: bool = True) -> SelfTestResult:
    """Build the result from the findings of all probes that were tried."""
    failed = {name: finding[:MAX_FINDING_CHARACTERS] for name, finding in findings.items() if finding != HELD}
    held = tuple(name for name in PROBES if findings.get(name) == HELD)
    untried = tuple(name for name in PROBES if name not in findings)
    return SelfTestResult(held, failed, untried, memory_is_metered)


def parse_probe_output(lines: Iterable[str]) -> dict[str, str]:
    """Parse `name finding` lines; unknown names are ignored, as they are a bug of the probe."""
    parsed = (line.strip().partition(" ") for line in lines)
    return {name: finding.strip() for name, _, finding in parsed if name in PROBES}


def _run_isolation_probes(sandbox: Sandbox, worker_directory: Path, python: str | None) -> dict[str, str]:
    with ExitStack() as open_here:
        listener = open_here.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = f"punctual-{uuid.uuid4()}"
        hidden = open_here.enter_context(socket.socket(socket.AF_UNIX))
        hidden.bind("\0" + abstract)
        hidden.listen()
        probe_input = {
            "calls": compiler.resolve_syscall_numbers(PROBED_SYSCALLS),
            "port": listener.getsockname()[1],
            "abstract": abstract,
            "processes": MAX_PROCESSES,
        }
        started = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        argv = (
            *("/bin/sh", "-c", (HERE / "probe.sh").read_text(), "sh", str(started), str(worker_directory)),
            *(str(DISK_BYTES), python or "", (HERE / "probe_program.py").read_text(), json.dumps(probe_input)),
        )
        try:
            output, _ = _run_program(sandbox, argv, PROBE_LIMITS)
        except SandboxError as error:
            return {"building": str(error)}
    return {"building": HELD, **parse_probe_output(output.splitlines())}


def _run_memory_probe(sandbox: Sandbox, name: str, argv: tuple[str, ...], limits: Limits) -> dict[str, str]:
    try:
        output, outcome = _run_program(sandbox, argv, limits)
    except SandboxError as error:
        return {"building": str(error)}
    if outcome.reason is ExitReason.OUT_OF_MEMORY or output.strip() == HELD:
        return {name: HELD}
    if outcome.reason is not ExitReason.EXIT:
        return {}  # it was killed for another reason before it had the memory
    return {name: output.strip() or "it used much more than the limit"}


def _run_program(sandbox: Sandbox, argv: tuple[str, ...], limits: Limits) -> tuple[str, Outcome]:
    output = bytearray()

    def record(stream: Stream, data: bytes) -> None:
        if stream is Stream.STDOUT:
            output.extend(data)

    with sandbox.start(Program(argv, ENVIRONMENT), limits) as run:
        outcome = run.stream(record)
    return output.decode(errors="replace"), outcome
