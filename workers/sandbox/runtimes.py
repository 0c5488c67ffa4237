"""The table of runtimes: which interpreter runs which kind of program.

Invariant: a runtime is offered only if its interpreter was seen running inside the sandbox, where an
interpreter under someone's home does not exist.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.errors import SandboxError
from workers.sandbox.host import Host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import WORK, EndReason, Limits, Program, Stream

BINARY = "binary"
DIRECTORIES = ("/usr/local/bin", "/usr/bin", "/bin")
PROBE_LIMITS = Limits(wall_seconds=20, memory_bytes=2**28, disk_bytes=2**20, cpus=1)


@dataclass(frozen=True)
class Interpreter:
    name: str
    path: str
    version: str


@dataclass(frozen=True)
class Runtime:
    names: tuple[str, ...]  # file names, the preferred first
    version_arguments: tuple[str, ...]  # what makes it print its version alone
    run_arguments: tuple[str, ...] = ()


RUNTIMES: Mapping[str, Runtime] = {
    "bash": Runtime(("bash",), ("-c", 'echo "$BASH_VERSION"')),
    "python": Runtime(
        ("python3", *(f"python3.{minor}" for minor in range(20, 7, -1))),
        ("-c", "import platform; print(platform.python_version())"),
        # else nothing of the log appears before the program ends
        run_arguments=("-u",),
    ),
}


def find_runtimes(host: Host) -> dict[str, Interpreter]:
    """Return the runtimes that work here, each by running its interpreter in a sandbox."""
    found = {BINARY: Interpreter(BINARY, "", platform.machine())}
    sandbox = Sandbox(host)
    try:
        for name, runtime in RUNTIMES.items():
            for path in _candidates(runtime):
                version = _version(sandbox, (path, *runtime.version_arguments))
                if version:
                    found[name] = Interpreter(name, path, version)
                    break
    finally:
        sandbox.close()
    return found


def command_for(
    runtime: str, interpreters: Mapping[str, Interpreter], program_path: str, args: Sequence[str]
) -> tuple[str, ...]:
    """Return the argv that runs `program_path` (relative to /work, or absolute inside the sandbox)."""
    program = program_path if program_path.startswith("/") else f"{WORK}/{program_path}"
    interpreter = interpreters.get(runtime)
    if interpreter is None:
        have = ", ".join(sorted(interpreters)) or "none"
        raise SandboxError(f"This worker has no runtime {runtime!r} (it has: {have}); install its interpreter.")
    if runtime == BINARY:
        return (program, *args)
    return (interpreter.path, *RUNTIMES[runtime].run_arguments, program, *args)


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
    return said[Stream.STDOUT].decode(errors="replace").strip()
