"""The contenders of `benchmarks.spawning`; as a program, it measures one of them and prints what it saw."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from workers.run.outputs import collect_outputs
from workers.sandbox.bubblewrap import command_line
from workers.sandbox.cgroups.lifecycle import remove_cgroup
from workers.sandbox.cgroups.v1 import find_parents
from workers.sandbox.host import detect_host
from workers.sandbox.memory_files import memory_file
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.seccomp import compiler
from workers.sandbox.values import ExitReason, InputFile, Limits, Program

TRUE = "/usr/bin/true"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/work", "LANG": "C.UTF-8"}
MEGABYTE = 2**20
LIMITS = Limits(wall_seconds=60, memory_bytes=128 * MEGABYTE, disk_bytes=64 * MEGABYTE, cpus=1)
WARM_UP = 20

Spawner = Callable[[], None]


@dataclass(frozen=True)
class Measurement:
    seconds: list[float]  # of each run
    elapsed: float  # of all
    cpu_seconds: float
    cpu_counted_by: str


@contextmanager
def bare() -> Iterator[Spawner]:
    def spawn() -> None:
        pid = os.posix_spawn(TRUE, ["true"], ENVIRONMENT)
        assert os.waitpid(pid, 0)[1] == 0

    yield spawn


@contextmanager
def plain_bubblewrap() -> Iterator[Spawner]:
    """Everything anew for each run, and nothing around it; as an ordinary user, as ours does."""
    host = detect_host()
    bwrap = os.open(host.bwrap, os.O_RDONLY | os.O_CLOEXEC)
    libraries = command_line.private_libraries(host.bwrap)
    copies = ":".join(f"/proc/self/fd/{memory_file(path.read_bytes())}" for path in libraries)
    for number in copies.split(":") if copies else ():
        os.set_inheritable(int(number.rpartition("/")[2]), True)
    environment = {"LD_PRELOAD": copies} if copies else {}
    program, rules = Path(TRUE).read_bytes(), compiler.compile_host_filter()
    if host.users is not None:
        uid = host.users.uid_of(os.getpid())
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    before = [
        *command_line.isolation_arguments(slot_shares=False),
        *command_line.own_root_arguments(),
        *command_line.writable_arguments(LIMITS),
    ]
    after = [
        *command_line.remount_arguments(slot_shares=False),
        *command_line.environment_arguments(ENVIRONMENT),
    ]

    def spawn() -> None:
        with ExitStack() as opened:

            def lend(content: bytes) -> str:
                descriptor = memory_file(content)
                opened.callback(os.close, descriptor)
                os.set_inheritable(descriptor, True)
                return str(descriptor)

            files = [
                part
                for target, text in command_line.SYNTHETIC_FILES.items()
                for part in ("--perms", "0444", "--file", lend(text.encode()), target)
            ]
            own = ["--perms", "0755", "--file", lend(program), "/work/program", "--seccomp", lend(rules)]
            argv = ["bwrap", *before, *files, *own, *after, "--", "/work/program"]
            pid = os.posix_spawn(f"/proc/self/fd/{bwrap}", argv, environment)
            assert os.waitpid(pid, 0)[1] == 0

    yield spawn
    os.close(bwrap)


@contextmanager
def ours() -> Iterator[Spawner]:
    sandbox = Sandbox(detect_host())
    descriptor = os.open(TRUE, os.O_RDONLY | os.O_CLOEXEC)
    program = Program(("/work/program",), ENVIRONMENT, (InputFile("program", descriptor, executable=True),))

    def spawn() -> None:
        with sandbox.start(program, LIMITS) as run:
            outcome = run.stream(lambda stream, data: None)
            collected = collect_outputs(run.output_directory, lambda output, body: None)
        assert (outcome.reason, outcome.exit_code, collected.outputs) == (ExitReason.EXIT, 0, [])

    try:
        yield spawn
    finally:
        sandbox.close()
        os.close(descriptor)


CONTENDERS: Mapping[str, Callable[[], contextlib.AbstractContextManager[Spawner]]] = {
    "bare": bare,
    "bubblewrap": plain_bubblewrap,
    "ours": ours,
}


class Cpu:
    """All that this process and what it starts use: the word of the cgroup it moves to, else what was waited for."""

    def __init__(self, cgroup: Path | None) -> None:
        self._usage: int | None = None
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
            self._usage = os.open(cgroup / "cpuacct.usage", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def counted_by(self) -> str:
        return "cgroup" if self._usage is not None else "rusage"

    def seconds(self) -> float:
        if self._usage is not None:
            return int(os.pread(self._usage, 64, 0)) / 1e9
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


@contextmanager
def cpu_cgroup() -> Iterator[Path | None]:
    """For one contender; removed once it has ended."""
    parents = find_parents(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    directory = next((path for path in parents.values() if (path / "cpuacct.usage").exists()), None)
    if directory is None:
        yield None
        return
    made = directory / f"punctual-benchmark-{os.getpid()}"
    made.mkdir()
    try:
        yield made
    finally:
        remove_cgroup((made,))


def measure(name: str, runs: int, at_once: int, cgroup: Path | None) -> Measurement:
    cpu = Cpu(cgroup)
    with CONTENDERS[name]() as spawn, ThreadPoolExecutor(at_once) as threads:
        for warm in [threads.submit(spawn) for _ in range(WARM_UP)]:
            warm.result()
        used, started = cpu.seconds(), time.perf_counter()
        seconds = [done.result() for done in [threads.submit(_timed, spawn) for _ in range(runs)]]
        elapsed = time.perf_counter() - started
        return Measurement(seconds, elapsed, cpu.seconds() - used, cpu.counted_by)


def _timed(spawn: Spawner) -> float:
    started = time.perf_counter()
    spawn()
    return time.perf_counter() - started


if __name__ == "__main__":
    chosen, runs, at_once, *group = sys.argv[1:]
    cgroup = Path(group[0]) if group else None
    print(json.dumps(dataclasses.asdict(measure(chosen, int(runs), int(at_once), cgroup))))
