"""Preparation of local programs and input files for submission.

Small scripts are sent inside the job. Everything else is uploaded as an artifact, from the same open file that was
hashed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from punctual_client.errors import UsageError

if TYPE_CHECKING:
    from punctual_client.resources.artifacts import ArtifactCalls

MAX_INLINE_BYTES = 1024 * 1024
CHUNK_BYTES = 256 * 1024

Advance = Callable[[int], None]
# Called with the name and the size of a transfer; the context's value is called with the size of each chunk.
ProgressReporter = Callable[[str, int], AbstractContextManager[Advance]]


@contextmanager
def no_progress(name: str, size: int) -> Iterator[Advance]:
    yield lambda _: None


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
# The interpreter of a shebang, without its version.
_INTERPRETERS = {
    "bash": Runtime.BASH, "bun": Runtime.BUN, "dash": Runtime.SH, "deno": Runtime.DENO, "lua": Runtime.LUA,
    "luajit": Runtime.LUA, "node": Runtime.NODE, "nodejs": Runtime.NODE, "perl": Runtime.PERL, "php": Runtime.PHP,
    "python": Runtime.PYTHON, "rscript": Runtime.R, "ruby": Runtime.RUBY, "sh": Runtime.SH,
}  # fmt: skip
_SHEBANG_PATTERN = re.compile(rb"#![ \t]*(?:\S*/env[ \t]+(?:-S[ \t]+)?)?(?:\S*/)?([A-Za-z]+)[\d.]*(?:\s|$)")


def parse_runtime(word: str) -> Runtime:
    try:
        return Runtime(word)
    except ValueError:
        raise UsageError(f"{word!r} is not a runtime: use one of {', '.join(Runtime)}.") from None


def guess_runtime(path: Path, head: bytes) -> Runtime:
    """Guess the runtime from the first bytes of a file, else from its name."""
    if head.startswith(b"\x7fELF"):
        return Runtime.BINARY
    shebang = _SHEBANG_PATTERN.match(head)
    named = _INTERPRETERS.get(shebang[1].decode().lower()) if shebang else None
    chosen = named or _SUFFIXES.get(path.suffix.lower())
    if chosen is None:
        raise UsageError(f"The runtime of {path.name!r} cannot be guessed: name it with --runtime.")
    return chosen


def prepare_program(
    client: ArtifactCalls, path: Path, runtime: Runtime | None, *, progress: ProgressReporter = no_progress
) -> dict[str, object]:
    """Return the program fields of a job's specification; upload the program if it is binary or large."""
    with _open_nonempty(path) as (file, head):
        chosen = runtime or guess_runtime(path, head)
        script = _inline_text(head) if chosen is not Runtime.BINARY else None
        if script is not None:
            return {"runtime": chosen.value, "script": script}
        return {"runtime": chosen.value, "artifact": _upload(client, file, path.name, progress)}


def prepare_inputs(
    client: ArtifactCalls,
    stdin: Path | None,
    inputs: Sequence[tuple[str, str]] | None,
    *,
    no_stdin: bool = False,
    no_inputs: bool = False,
    progress: ProgressReporter = no_progress,
) -> dict[str, object]:
    """Return the stdin and input fields of a job's specification, and upload their files."""
    fields: dict[str, object] = {}
    if no_stdin:
        fields["stdin"] = None
    elif stdin is not None:
        fields |= prepare_stdin(client, stdin, progress)
    if inputs or no_inputs:
        fields["inputs"] = [
            {"path": path, "artifact": upload_file(client, Path(file), progress)} for path, file in inputs or []
        ]
    return fields


def prepare_stdin(client: ArtifactCalls, path: Path, progress: ProgressReporter = no_progress) -> dict[str, object]:
    with _open_nonempty(path) as (file, head):
        text = _inline_text(head)
        return {"stdin": text} if text is not None else {"stdin_artifact": _upload(client, file, path.name, progress)}


def upload_file(client: ArtifactCalls, path: Path, progress: ProgressReporter = no_progress) -> str:
    with _open_nonempty(path) as (file, _):
        return _upload(client, file, path.name, progress)


@contextmanager
def _open_nonempty(path: Path) -> Iterator[tuple[BufferedReader, bytes]]:
    """Open a file and read its head, which is complete for an inline script."""
    try:
        with path.open("rb") as file:
            head = file.read(MAX_INLINE_BYTES + 1)
            if not head:
                raise UsageError(f"{path} is empty.")
            yield file, head
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _inline_text(content: bytes) -> str | None:
    if len(content) > MAX_INLINE_BYTES or b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _upload(client: ArtifactCalls, file: BufferedReader, name: str, progress: ProgressReporter) -> str:
    file.seek(0)
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    size = file.tell()
    file.seek(0)
    artifact = client.create_artifact(sha256=sha256, size=size)
    if artifact.upload is None:
        return artifact.id
    with progress(name, size) as advance:

        def pieces() -> Iterator[bytes]:
            while piece := file.read(CHUNK_BYTES):
                yield piece
                advance(len(piece))

        client.upload_artifact(artifact.upload, pieces(), size=size)
    return client.complete_artifact(artifact.id).id
