"""Helpers to run shell programs in a sandbox and inspect the host; standard library only."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.run import Run
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import InputFile, Limits, Outcome, Program, Stream

MEBIBYTE = 1024 * 1024
PATH = {"PATH": "/usr/bin:/bin"}


@dataclass(frozen=True)
class Result:
    outcome: Outcome
    stdout: bytes
    stderr: bytes
    outputs: Mapping[str, bytes]


class Recorder:
    """An `on_output` callback that records the output and can react to it."""

    def __init__(self, react: Callable[[bytes], None] | None = None) -> None:
        self.streams: dict[Stream, bytes] = {Stream.STDOUT: b"", Stream.STDERR: b""}
        self.largest = 0
        self._react = react

    def __call__(self, stream: Stream, data: bytes) -> None:
        self.streams[stream] += data
        self.largest = max(self.largest, len(data))
        if self._react:
            self._react(self.streams[Stream.STDOUT])


def limits(
    *,
    wall_seconds: float = 20,
    memory: int = 128 * MEBIBYTE,
    disk: int = 4 * MEBIBYTE,
    processes: int = 64,
    output: int = 64 * MEBIBYTE,
) -> Limits:
    return Limits(
        wall_seconds=wall_seconds,
        memory_bytes=memory,
        disk_bytes=disk,
        cpus=2,
        processes=processes,
        output_bytes=output,
    )


def shell(script: str, *args: str, files: tuple[InputFile, ...] = ()) -> Program:
    return Program(("/bin/sh", "-c", script, *args), PATH, files)


def execute(
    sandbox: Sandbox,
    program: Program | str,
    run_limits: Limits | None = None,
    react: Callable[[Run, bytes], None] | None = None,
) -> Result:
    """Run a program and collect its results; `react` gets the run and its stdout so far."""
    if isinstance(program, str):
        program = shell(program)
    with sandbox.start(program, run_limits or limits()) as run:
        record = Recorder((lambda stdout: react(run, stdout)) if react else None)
        outcome = run.stream(record)
        outputs = read_outputs(run.output_directory)
    return Result(outcome, record.streams[Stream.STDOUT], record.streams[Stream.STDERR], outputs)


def read_outputs(directory: int) -> dict[str, bytes]:
    contents = {}
    for name in os.listdir(directory):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        with open(descriptor, "rb") as file:
            contents[name] = file.read()
    return contents


def processes_with(marker: str) -> list[int]:
    """Return the host's processes, without zombies, whose command line contains the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def children(pid: int) -> list[int]:
    """Return all children, including zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if int(parent) == pid:
                found.append(int(entry.name))
    return found


def processes_in_namespace_of(pid: int) -> int:
    """Count the processes, without zombies, in the pid namespace of this process."""
    try:
        wanted = os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lives = (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                count += lives and os.stat(entry / "ns" / "pid").st_ino == wanted
            except OSError:
                continue
    return count


def slot_cgroups(owner: int) -> list[Path]:
    """Return the slot cgroups of this worker process."""
    root = Path("/sys/fs/cgroup")
    return [
        Path(directory, name)
        for directory, names, _ in os.walk(root)
        for name in names
        if name.startswith(f"punctual-slot-{owner}-")
    ]


def words(data: bytes) -> Sequence[str]:
    return data.decode().split()
