"""The table of runtimes: which interpreter runs which kind of program, under which name and with which arguments.

Invariant: a runtime is offered only if its interpreter was seen running inside the sandbox, where an
interpreter under someone's home does not exist.
"""

import math
import platform
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.errors import SandboxError
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import WORK, EndReason, Limits, Program, Stream

BINARY = "binary"
PROGRAM = "program"
DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin")
PROBE_LIMITS = Limits(wall_seconds=20, memory_bytes=2**28, disk_bytes=2**20, cpus=1)
PROBES_AT_ONCE = 2
MEGABYTE = 1024 * 1024
VERSION = re.compile(r"\d+(?:\.\w+)+[\w.+-]*")
LONGEST_VERSION = 60


@dataclass(frozen=True)
class Interpreter:
    name: str
    path: str
    version: str


@dataclass(frozen=True)
class Packed:
    """Another form of program, told by its first bytes."""

    magic: bytes
    suffix: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Runtime:
    names: tuple[str, ...]  # file names of the interpreter, the preferred first
    suffix: str  # of the program's own name
    version_arguments: tuple[str, ...]  # what makes it print its version first
    # before the program; `{memory_mb}` and `{cpus}` are the limits of the run, `{heap_mb}` a heap's part of them: who
    # is not told believes the whole machine to be its own, and is killed before it collects any garbage
    run_arguments: tuple[str, ...] = ()
    packed: Packed | None = None


RUNTIMES: Mapping[str, Runtime] = {
    "bash": Runtime(("bash",), ".sh", ("-c", 'echo "$BASH_VERSION"')),
    "bun": Runtime(("bun",), ".ts", ("--version",), ("run",)),
    "deno": Runtime(
        ("deno",),
        ".ts",
        ("--version",),
        # its own permissions are the sandbox's
        ("run", "--quiet", "--allow-all", "--v8-flags=--max-old-space-size={heap_mb}"),
    ),
    "java": Runtime(
        ("java",),
        ".java",
        # its compiler's: a Java without one runs no source, and most of what can be missing is missed by it
        ("-XX:TieredStopAtLevel=1", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-version"),
        (
            "-XX:MaxRAM={memory_mb}m",
            "-XX:MaxRAMPercentage=60",
            "-XX:ActiveProcessorCount={cpus}",
            "-XX:-UsePerfData",
        ),
        Packed(b"PK\x03\x04", ".jar", ("-jar",)),
    ),
    "lua": Runtime(("lua", "lua5.4", "lua5.3", "luajit"), ".lua", ("-v",)),
    "node": Runtime(("node", "nodejs"), ".js", ("-p", "process.versions.node"), ("--max-old-space-size={heap_mb}",)),
    "perl": Runtime(("perl",), ".pl", ("-e", 'printf "%vd\n", $^V')),
    "php": Runtime(("php",), ".php", ("-r", "echo PHP_VERSION;")),
    "python": Runtime(
        ("python3", *(f"python3.{minor}" for minor in range(20, 7, -1))),
        ".py",
        ("-c", "import platform; print(platform.python_version())"),
        # else nothing of the log appears before the program ends
        ("-u",),
    ),
    "r": Runtime(("Rscript",), ".R", ("-e", "cat(as.character(getRversion()))")),
    "ruby": Runtime(("ruby",), ".rb", ("-e", "puts RUBY_VERSION")),
    # it has no version; what is behind the name says most
    "sh": Runtime(("sh",), ".sh", ("-c", 'p=$(readlink /proc/$$/exe) && echo "${p##*/}"')),
}


@dataclass(frozen=True)
class Command:
    file: str  # the name in /work that the program is to have
    argv: tuple[str, ...]


def find_runtimes(sandbox: Sandbox) -> dict[str, Interpreter]:
    """Return the runtimes that work here, each by running its interpreter in a sandbox, several at once."""
    found = {BINARY: Interpreter(BINARY, "", platform.machine())}
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        seen = pool.map(lambda name: _find(sandbox, name), RUNTIMES)
        found |= {interpreter.name: interpreter for interpreter in seen if interpreter}
    return found


def command_for(
    runtime: str, interpreters: Mapping[str, Interpreter], args: Sequence[str], *, head: bytes, limits: Limits
) -> Command:
    """Return under which name and with which argv a program runs that begins with `head`."""
    interpreter = interpreters.get(runtime)
    if interpreter is None:
        have = ", ".join(sorted(interpreters)) or "none"
        raise SandboxError(f"This worker has no runtime {runtime!r} (it has: {have}); install its interpreter.")
    if runtime == BINARY:
        return Command(PROGRAM, (f"{WORK}/{PROGRAM}", *args))
    chosen = RUNTIMES[runtime]
    tuned = tuple(argument.format_map(_measures(limits)) for argument in chosen.run_arguments)
    packed = chosen.packed
    if packed is not None and head.startswith(packed.magic):
        file, tuned = PROGRAM + packed.suffix, tuned + packed.arguments
    else:
        file = PROGRAM + chosen.suffix
    return Command(file, (interpreter.path, *tuned, f"{WORK}/{file}", *args))


def _measures(limits: Limits) -> Mapping[str, int]:
    memory_mb = limits.memory_bytes // MEGABYTE
    return {
        "memory_mb": memory_mb,
        "heap_mb": max(memory_mb * 6 // 10, 1),
        "cpus": max(1, math.ceil(limits.cpus)),
    }


def _find(sandbox: Sandbox, name: str) -> Interpreter | None:
    runtime = RUNTIMES[name]
    for path in _candidates(runtime):
        version = _version(sandbox, (path, *runtime.version_arguments))
        if version:
            return Interpreter(name, path, version)
    return None


def _candidates(runtime: Runtime) -> list[str]:
    paths = [f"{directory}/{name}" for name in runtime.names for directory in DIRECTORIES]
    return [path for path in paths if Path(path).exists()]


def _version(sandbox: Sandbox, argv: tuple[str, ...]) -> str | None:
    said: dict[Stream, bytes] = {Stream.STDOUT: b"", Stream.STDERR: b""}

    def listen(stream: Stream, data: bytes) -> None:
        said[stream] += data

    with sandbox.start(Program(argv, {"PATH": "/usr/bin:/bin"}), PROBE_LIMITS) as run:
        outcome = run.stream(listen)
    if outcome.reason is not EndReason.EXIT or outcome.exit_code != 0:
        return None
    return version_in(said[Stream.STDOUT].decode(errors="replace"))


def version_in(text: str) -> str:
    """Return the number in the first line that an interpreter printed, or that line if there is none in it."""
    first = text.strip().partition("\n")[0].strip()
    number = VERSION.search(first)
    return (number[0] if number else first)[:LONGEST_VERSION]
