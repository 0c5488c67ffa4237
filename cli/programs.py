"""A program on this machine, made ready to be submitted.

Small scripts travel inside the job; everything else is an artifact, sent from the same open file its hash
was taken from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import UsageMistakeError
from cli.progress import Watch, unwatched
from cli.values import parse_input

if TYPE_CHECKING:
    from cli.storage_calls import StorageCalls

LARGEST_INLINE_BYTES = 1024 * 1024
PIECE_BYTES = 256 * 1024


class Runtime(StrEnum):
    BASH = "bash"
    BINARY = "binary"
    BUN = "bun"
    DENO = "deno"
    JAVA = "java"
    LUA = "lua"
    NODE = "node"
    PERL = "perl"
    PHP = "php"
    PYTHON = "python"
    R = "r"
    RUBY = "ruby"
    SH = "sh"


_SUFFIXES = {
    ".bash": Runtime.BASH, ".cjs": Runtime.NODE, ".jar": Runtime.JAVA, ".java": Runtime.JAVA, ".js": Runtime.NODE,
    ".lua": Runtime.LUA, ".php": Runtime.PHP, ".pl": Runtime.PERL, ".py": Runtime.PYTHON, ".pyz": Runtime.PYTHON,
    ".r": Runtime.R, ".rb": Runtime.RUBY, ".sh": Runtime.BASH,
}  # fmt: skip
# What a shebang names, without its version.
_INTERPRETERS = {
    "bash": Runtime.BASH, "bun": Runtime.BUN, "dash": Runtime.SH, "deno": Runtime.DENO, "lua": Runtime.LUA,
    "luajit": Runtime.LUA, "node": Runtime.NODE, "nodejs": Runtime.NODE, "perl": Runtime.PERL, "php": Runtime.PHP,
    "python": Runtime.PYTHON, "rscript": Runtime.R, "ruby": Runtime.RUBY, "sh": Runtime.SH,
}  # fmt: skip
_SHEBANG = re.compile(rb"#![ \t]*(?:\S*/env[ \t]+(?:-S[ \t]+)?)?(?:\S*/)?([A-Za-z]+)[\d.]*(?:\s|$)")


def parse_runtime(word: str) -> Runtime:
    try:
        return Runtime(word)
    except ValueError:
        raise UsageMistakeError(f"{word!r} is no runtime: it is one of {', '.join(Runtime)}.") from None


def guess_runtime(path: Path, head: bytes) -> Runtime:
    """From what the file begins with, else from its name."""
    if head.startswith(b"\x7fELF"):
        return Runtime.BINARY
    shebang = _SHEBANG.match(head)
    named = _INTERPRETERS.get(shebang[1].decode().lower()) if shebang else None
    chosen = named or _SUFFIXES.get(path.suffix.lower())
    if chosen is None:
        raise UsageMistakeError(f"What runs {path.name!r} cannot be guessed: say it with --runtime.")
    return chosen


def prepare_program(
    client: StorageCalls, path: Path, runtime: Runtime | None, *, watch: Watch = unwatched
) -> dict[str, object]:
    """The part of a job's specification that says what to run; uploads the program if it has to be."""
    with _opened(path) as (file, head):
        chosen = runtime or guess_runtime(path, head)
        script = _inline_text(head) if chosen is not Runtime.BINARY else None
        if script is not None:
            return {"runtime": chosen.value, "script": script}
        return {"runtime": chosen.value, "artifact": _upload(client, file, path.name, watch)}


def check_given(
    stdin: Path | None, inputs: Sequence[str] | None, *, no_stdin: bool = False, no_inputs: bool = False
) -> None:
    """Before anything is sent."""
    if no_stdin and stdin is not None:
        raise UsageMistakeError("--no-stdin has no meaning beside --stdin.")
    if no_inputs and inputs:
        raise UsageMistakeError("--no-inputs has no meaning beside --input.")
    for word in inputs or []:
        parse_input(word)


def prepare_given(
    client: StorageCalls,
    stdin: Path | None,
    inputs: Sequence[str] | None,
    *,
    no_stdin: bool = False,
    no_inputs: bool = False,
    watch: Watch = unwatched,
) -> dict[str, object]:
    """The part of a job's specification that says what its program is given; uploads what has to be."""
    given: dict[str, object] = {}
    if no_stdin:
        given["stdin"] = None
    elif stdin is not None:
        given |= prepare_stdin(client, stdin, watch)
    if inputs or no_inputs:
        files = [parse_input(word) for word in inputs or []]
        given["inputs"] = [{"path": path, "artifact": upload_file(client, Path(file), watch)} for path, file in files]
    return given


def prepare_stdin(client: StorageCalls, path: Path, watch: Watch = unwatched) -> dict[str, object]:
    with _opened(path) as (file, head):
        text = _inline_text(head)
        return {"stdin": text} if text is not None else {"stdin_artifact": _upload(client, file, path.name, watch)}


def upload_file(client: StorageCalls, path: Path, watch: Watch = unwatched) -> str:
    with _opened(path) as (file, _):
        return _upload(client, file, path.name, watch)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BufferedReader, bytes]]:
    """The file, and what it begins with."""
    try:
        with path.open("rb") as file:
            head = file.read(LARGEST_INLINE_BYTES + 1)
            if not head:
                raise UsageMistakeError(f"{path} is empty.")
            yield file, head
    except OSError as error:
        raise UsageMistakeError(f"{path} cannot be read: {error.strerror or error}.") from None


def _inline_text(content: bytes) -> str | None:
    if len(content) > LARGEST_INLINE_BYTES or b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _upload(client: StorageCalls, file: BufferedReader, name: str, watch: Watch) -> str:
    file.seek(0)
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    size = file.tell()
    file.seek(0)
    artifact = client.create_artifact(sha256=sha256, size=size)
    if artifact.upload is None:
        return artifact.id
    with watch(name, size) as advance:

        def pieces() -> Iterator[bytes]:
            while piece := file.read(PIECE_BYTES):
                yield piece
                advance(len(piece))

        client.upload_artifact(artifact.upload, pieces(), size=size)
    return client.complete_artifact(artifact.id).id
