"""Table of runtimes: interpreter, file name and arguments for each kind of program.

Invariant: a runtime is offered only if its interpreter works inside the sandbox, where home directories do not exist.
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
from workers.sandbox.values import MIB, WORK_DIRECTORY, ExitReason, Limits, Program, Stream

BINARY = "binary"
PROGRAM_NAME = "program"
INTERPRETER_DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin")
PROBE_LIMITS = Limits(wall_seconds=20, memory_bytes=2**28, disk_bytes=2**20, cpus=1)
MAX_CONCURRENT_PROBES = 2
VERSION_PATTERN = re.compile(r"\d+(?:\.\w+)+[\w.+-]*")
MAX_VERSION_CHARACTERS = 60


@dataclass(frozen=True)
class Interpreter:
    name: str
    path: str
    version: str


@dataclass(frozen=True)
class PackagedForm:
    """Another form of program, recognised by its first bytes."""

    magic: bytes
    suffix: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Runtime:
    names: tuple[str, ...]  # file names of the interpreter, in order of preference
    suffix: str  # of the program's file name
    version_arguments: tuple[str, ...]  # make the interpreter print its version
    # `{memory_mb}` and `{cpus}` are the limits of the run, `{heap_mb}` the heap's share: without them an interpreter
    # assumes the whole machine, and is killed before it collects any garbage
    arguments_before_program: tuple[str, ...] = ()
    packed: PackagedForm | None = None


RUNTIMES: Mapping[str, Runtime] = {
    "bash": Runtime(("bash",), ".sh", ("-c", 'echo "$BASH_VERSION"')),
    "bun": Runtime(("bun",), ".ts", ("--version",), ("run",)),
    "deno": Runtime(
        ("deno",),
        ".ts",
        ("--version",),
        # the sandbox replaces Deno's own permissions
        ("run", "--quiet", "--allow-all", "--v8-flags=--max-old-space-size={heap_mb}"),
    ),
    "java": Runtime(
        ("java",),
        ".java",
        # the compiler's: Java needs one to run source files, and it fails if most other parts are missing
        ("-XX:TieredStopAtLevel=1", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-version"),
        (
            "-XX:MaxRAM={memory_mb}m",
            "-XX:MaxRAMPercentage=60",
            "-XX:ActiveProcessorCount={cpus}",
            "-XX:-UsePerfData",
        ),
        PackagedForm(b"PK\x03\x04", ".jar", ("-jar",)),
    ),
    "lua": Runtime(("lua", "lua5.4", "lua5.3", "luajit"), ".lua", ("-v",)),
    "node": Runtime(("node", "nodejs"), ".js", ("-p", "process.versions.node"), ("--max-old-space-size={heap_mb}",)),
    "perl": Runtime(("perl",), ".pl", ("-e", 'printf "%vd\n", $^V')),
    "php": Runtime(("php",), ".php", ("-r", "echo PHP_VERSION;")),
    "python": Runtime(
        ("python3", *(f"python3.{minor}" for minor in range(20, 7, -1))),
        ".py",
        ("-c", "import platform; print(platform.python_version())"),
        # unbuffered: otherwise the log appears only when the program ends
        ("-u",),
    ),
    "r": Runtime(("Rscript",), ".R", ("-e", "cat(as.character(getRversion()))")),
    "ruby": Runtime(("ruby",), ".rb", ("-e", "puts RUBY_VERSION")),
    # sh has no version: show the name of the actual shell
    "sh": Runtime(("sh",), ".sh", ("-c", 'p=$(readlink /proc/$$/exe) && echo "${p##*/}"')),
}


@dataclass(frozen=True)
class Command:
    file: str  # the program's name in /work
    argv: tuple[str, ...]


def find_runtimes(sandbox: Sandbox) -> dict[str, Interpreter]:
    """Return the runtimes whose interpreters work in a sandbox on this host."""
    found = {BINARY: Interpreter(BINARY, "", platform.machine())}
    with ThreadPoolExecutor(MAX_CONCURRENT_PROBES) as pool:
        seen = pool.map(lambda name: _detect_interpreter(sandbox, name), RUNTIMES)
        found |= {interpreter.name: interpreter for interpreter in seen if interpreter}
    return found


def build_command(
    runtime: str, interpreters: Mapping[str, Interpreter], args: Sequence[str], *, head: bytes, limits: Limits
) -> Command:
    """Return the file name and argv of a program; `head` is its first bytes."""
    interpreter = interpreters.get(runtime)
    if interpreter is None:
        have = ", ".join(sorted(interpreters)) or "none"
        raise SandboxError(f"This worker has no runtime {runtime!r} (it has: {have}); install its interpreter.")
    if runtime == BINARY:
        return Command(PROGRAM_NAME, (f"{WORK_DIRECTORY}/{PROGRAM_NAME}", *args))
    chosen = RUNTIMES[runtime]
    tuned = tuple(argument.format_map(_limit_values(limits)) for argument in chosen.arguments_before_program)
    packed = chosen.packed
    if packed is not None and head.startswith(packed.magic):
        file, tuned = PROGRAM_NAME + packed.suffix, tuned + packed.arguments
    else:
        file = PROGRAM_NAME + chosen.suffix
    return Command(file, (interpreter.path, *tuned, f"{WORK_DIRECTORY}/{file}", *args))


def _limit_values(limits: Limits) -> Mapping[str, int]:
    memory_mb = limits.memory_bytes // MIB
    return {
        "memory_mb": memory_mb,
        "heap_mb": max(memory_mb * 6 // 10, 1),
        "cpus": max(1, math.ceil(limits.cpus)),
    }


def _detect_interpreter(sandbox: Sandbox, name: str) -> Interpreter | None:
    runtime = RUNTIMES[name]
    for path in _find_candidates(runtime):
        version = _probe_version(sandbox, (path, *runtime.version_arguments))
        if version:
            return Interpreter(name, path, version)
    return None


def _find_candidates(runtime: Runtime) -> list[str]:
    paths = [f"{directory}/{name}" for name in runtime.names for directory in INTERPRETER_DIRECTORIES]
    return [path for path in paths if Path(path).exists()]


def _probe_version(sandbox: Sandbox, argv: tuple[str, ...]) -> str | None:
    output: dict[Stream, bytes] = {Stream.STDOUT: b"", Stream.STDERR: b""}

    def record(stream: Stream, data: bytes) -> None:
        output[stream] += data

    with sandbox.start(Program(argv, {"PATH": "/usr/bin:/bin"}), PROBE_LIMITS) as run:
        outcome = run.stream(record)
    if outcome.reason is not ExitReason.EXIT or outcome.exit_code != 0:
        return None
    return parse_version(output[Stream.STDOUT].decode(errors="replace"))


def parse_version(text: str) -> str:
    """Return the version number in the first line of an interpreter's output, or the line if it has none."""
    first = text.strip().partition("\n")[0].strip()
    number = VERSION_PATTERN.search(first)
    return (number[0] if number else first)[:MAX_VERSION_CHARACTERS]
