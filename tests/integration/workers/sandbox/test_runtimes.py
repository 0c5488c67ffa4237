"""Every installed runtime runs a file with its arguments and within its memory."""

import io
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.driving import MEBIBYTE, Result, execute, limits
from workers.sandbox.host import Host
from workers.sandbox.memory_files import memory_file
from workers.sandbox.runtimes import INTERPRETER_DIRECTORIES, RUNTIMES, Interpreter, build_command, find_runtimes
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import ExitReason, InputFile, Program

JAVA = """
import java.security.SecureRandom;
class Greeting {
    static String last(String[] words) { return words[words.length - 1]; }
    public static void main(String[] words) throws Exception {
        new SecureRandom().nextInt();
        System.out.println(last(words));
    }
}
"""
C = """
#include <stdio.h>
int main(int argc, char **argv) { puts(argv[argc - 1]); return 0; }
"""
# each prints its last argument
PROGRAMS = {
    "bash": '[[ -n "$BASH_VERSION" ]] && echo "${@: -1}"',
    "java": JAVA,
    "node": "console.log(process.argv.at(-1))",
    "perl": 'print "$ARGV[-1]\\n"',
    "python": "import sys; print(sys.argv[-1])",
    "sh": 'for last; do :; done; echo "$last"',
}
# each allocates far more than it keeps: without knowing its limit, an interpreter is killed
WASTEFUL = {
    "java": "class A { public static void main(String[] a) { long n = 0;"
    " for (int i = 0; i < 600; i++) n += new byte[1 << 20].length; System.out.println(n >> 20); } }",
    "node": "const kept = []; let n = 0; while (n < 600) {"
    " kept[n % 60] = Array.from({length: 1 << 14}, (_, i) => ({i})); n++; } console.log(n)",
}


def is_installed(runtime: str) -> bool:
    """Find it where a sandbox can see it, ignoring links into home directories."""
    paths = [Path(directory, name) for name in RUNTIMES[runtime].names for directory in INTERPRETER_DIRECTORIES]
    return any(path.exists() and path.resolve().is_relative_to("/usr") for path in paths)


PRESENT = [runtime for runtime in PROGRAMS if is_installed(runtime)]


@pytest.fixture(scope="module")
def interpreters(bare_sandbox: Sandbox) -> dict[str, Interpreter]:
    return find_runtimes(bare_sandbox)


@pytest.fixture(scope="module")
def bare_sandbox(host: Host) -> Iterator[Sandbox]:
    sandbox = Sandbox(host)
    yield sandbox
    sandbox.close()


def run(sandbox: Sandbox, interpreters: dict[str, Interpreter], runtime: str, content: bytes) -> Result:
    within = limits(memory=192 * MEBIBYTE, disk=8 * MEBIBYTE)
    command = build_command(runtime, interpreters, ["", "a b"], head=content[:16], limits=within)
    descriptor = memory_file(content)
    try:
        program = Program(command.argv, {}, (InputFile(command.file, descriptor, executable=True),))
        return execute(sandbox, program, within)
    finally:
        os.close(descriptor)


def test_installed_runtimes_are_offered_with_versions(interpreters: dict[str, Interpreter]) -> None:
    assert set(PRESENT) >= {"bash", "python", "sh"}
    assert set(interpreters) >= {*PRESENT, "binary"}
    assert "cobol" not in interpreters
    assert all(interpreter.version for interpreter in interpreters.values())
    assert interpreters["python"].version.startswith("3.")
    assert interpreters["python"].path.startswith("/usr/")


@pytest.mark.parametrize("runtime", PRESENT)
def test_program_of_each_runtime_runs(
    bare_sandbox: Sandbox, interpreters: dict[str, Interpreter], runtime: str
) -> None:
    result = run(bare_sandbox, interpreters, runtime, PROGRAMS[runtime].encode())
    assert (result.stdout, result.stderr, result.outcome.exit_code) == (b"a b\n", b"", 0)


@pytest.mark.parametrize("linked", ["static", "dynamic"])
def test_compiled_program_runs(
    bare_sandbox: Sandbox, interpreters: dict[str, Interpreter], tmp_path: Path, linked: str
) -> None:
    (tmp_path / "a.c").write_text(C)
    options = ["-static"] if linked == "static" else []
    subprocess.run(["cc", *options, "-o", tmp_path / "a", tmp_path / "a.c"], check=True, timeout=60)
    result = run(bare_sandbox, interpreters, "binary", (tmp_path / "a").read_bytes())
    assert (result.stdout, result.outcome.exit_code) == (b"a b\n", 0)


@pytest.mark.parametrize("runtime", [runtime for runtime in PRESENT if runtime == "java"])
def test_jar_runs(bare_sandbox: Sandbox, interpreters: dict[str, Interpreter], tmp_path: Path, runtime: str) -> None:
    (tmp_path / "Greeting.java").write_text(JAVA)
    compiler = [interpreters[runtime].path, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-d", tmp_path, tmp_path / "Greeting.java"], check=True, timeout=60)
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nMain-Class: Greeting\n")
        archive.write(tmp_path / "Greeting.class", "Greeting.class")
    result = run(bare_sandbox, interpreters, runtime, jar.getvalue())
    assert (result.stdout, result.outcome.exit_code) == (b"a b\n", 0)


@pytest.mark.parametrize("runtime", [runtime for runtime in WASTEFUL if runtime in PRESENT])
def test_interpreter_collects_garbage_before_the_memory_limit(
    bare_sandbox: Sandbox, interpreters: dict[str, Interpreter], runtime: str
) -> None:
    result = run(bare_sandbox, interpreters, runtime, WASTEFUL[runtime].encode())
    assert (result.outcome.reason, result.outcome.exit_code) == (ExitReason.EXIT, 0), result.stderr
    assert result.stdout == b"600\n"
