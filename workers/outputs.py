"""Collects what a run left in `out/`, by descriptor.

Everything there was made by a stranger. Only regular files are read, no link is followed, no name leaves the directory,
and both count and size are capped; what breaks a rule is reported, not collected. No name, problem or result tells a
secret of the run; what is in the files is the program's own business.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

from jobs import conf
from jobs.protocol import StoredOutput
from jobs.storable import MAX_PATH_LENGTH, is_safe_name, is_storable_json, printed_excess
from workers.masking import Masker

RESULT_NAME = "result.json"
MAX_DEPTH = 16
MAX_ENTRIES = 20 * conf.MAX_OUTPUT_FILES  # looked at, whatever they are: more would keep the worker busy for nothing
MAX_PROBLEMS = 20
SHOWN_CHARACTERS = 200
READ_BYTES = 1024 * 1024
WRITTEN = ((",", ":"), (", ", ": "))  # as JSON is written by most
Store = Callable[[StoredOutput, IO[bytes]], None]


@dataclass(slots=True)
class Collected:
    outputs: list[StoredOutput] = field(default_factory=list)
    result: object = None
    problems: list[str] = field(default_factory=list)
    unsaid: int = 0  # problems beyond those that are told

    def report(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.unsaid += 1


def collect_outputs(directory: int, store: Store, masker: Masker | None = None) -> Collected:
    """Stores every acceptable file under the given directory descriptor."""
    collected = Collected()
    total = 0
    for name, descriptor in _Walk(collected, masker).regular_files(directory, "", MAX_DEPTH):
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if len(collected.outputs) >= conf.MAX_OUTPUT_FILES:
                collected.report(f"more than {conf.MAX_OUTPUT_FILES} output files; the rest was left out")
                break
            if total + size > conf.MAX_OUTPUT_BYTES:
                collected.report(f"{_shown(name)}: outputs exceed {conf.MAX_OUTPUT_BYTES} bytes in all; left out")
                continue
            digest = _digest(file, size)
            if digest is None:
                collected.report(f"{_shown(name)}: changed while it was read; left out")
                continue
            total += size
            output = StoredOutput(name, size, digest)
            store(output, file)
            collected.outputs.append(output)
            if name == RESULT_NAME:
                _read_result(file, size, collected, masker)
    if collected.unsaid:
        collected.problems.append(f"and {collected.unsaid} more")
    return collected


class _Walk:
    def __init__(self, collected: Collected, masker: Masker | None) -> None:
        self._report = collected.report
        self._masker = masker
        self._left = MAX_ENTRIES

    def regular_files(self, directory: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
        """Yields each with a descriptor, which is then the caller's."""
        for name in sorted(os.listdir(directory)):
            path = prefix + name
            self._left -= 1
            if self._left < 0:
                if self._left == -1:
                    self._report(f"more than {MAX_ENTRIES} files and directories; the rest was left out")
                return
            if self._masker is not None and (masked := self._masker.mask(path)) != path:
                self._report(f"{_shown(masked)}: a secret in the name; left out")
                continue
            if not is_safe_name(name) or len(path) > MAX_PATH_LENGTH:
                self._report(f"{_shown(path)}: not an acceptable file name; left out")
                continue
            try:
                found = _open(name, directory, into=depth > 0)
            except OSError as error:
                self._report(f"{_shown(path)}: {error.strerror}; left out")
                continue
            if found is None:
                self._report(f"{_shown(path)}: neither a regular file nor a directory; left out")
            elif stat.S_ISREG(os.fstat(found).st_mode):
                yield path, found
            else:
                try:
                    yield from self.regular_files(found, f"{path}/", depth - 1)
                finally:
                    os.close(found)


def _open(name: str, directory: int, *, into: bool) -> int | None:
    """Only a file that has one name, or a directory to go into, is opened; the rest is looked at, and None."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(handle)
        is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not is_file and not (into and stat.S_ISDIR(status.st_mode)):
            return None
        way = f"/proc/self/fd/{handle}"
        needed = 0o400 if is_file else 0o500
        if status.st_mode & needed != needed:
            # A worker that is not root is held up by modes; the file is its own, whatever the program did to it.
            os.chmod(way, needed)
        return os.open(way, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _shown(path: str) -> str:
    """What a stranger called it, as plain text and not at any length."""
    text = path if path.isprintable() else repr(path.encode("utf-8", "backslashreplace"))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _digest(file: IO[bytes], size: int) -> str | None:
    """None if it is no longer as long as it was."""
    digest, left = hashlib.sha256(), size
    while piece := file.read(min(READ_BYTES, left + 1)):
        digest.update(piece)
        left -= len(piece)
        if left < 0:
            return None
    return None if left else digest.hexdigest()


def _read_result(file: IO[bytes], size: int, collected: Collected, masker: Masker | None) -> None:
    if size > conf.MAX_RESULT_BYTES:
        collected.report(f"{RESULT_NAME}: larger than {conf.MAX_RESULT_BYTES} bytes; not taken as the result")
        return
    file.seek(0)
    try:
        result = json.loads(file.read().decode())  # as bytes it would be taken for UTF-16 or -32, too
        if not is_storable_json(result) or printed_excess(result) > conf.MAX_RESULT_BYTES:
            raise ValueError(RESULT_NAME)
    except (ValueError, RecursionError):
        collected.report(f"{RESULT_NAME}: not valid JSON; not taken as the result")
        return
    if masker is not None:
        result = masker.mask_json(result)
        # A secret that is itself JSON is not in any one text of it.
        if any((written := json.dumps(result, separators=style)) != masker.mask(written) for style in WRITTEN):
            collected.report(f"{RESULT_NAME}: a secret in it; not taken as the result")
            return
    collected.result = result
