"""Collection of the files that a run left in `out/`, by descriptor.

The files are untrusted. Only regular files are read, no link is followed, and both count and size are capped; files
that break a rule are reported, not collected. Secrets are masked in names, problems and the result, but not inside
files.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

from jobs.domain import limits
from jobs.domain.text_validation import MAX_PATH_LENGTH, count_expanded_characters, is_safe_name, is_storable_json
from jobs.domain.worker_protocol import StoredOutput
from workers.run.masking import Masker
from workers.sandbox.values import MIB

RESULT_FILE_NAME = "result.json"
MAX_DEPTH = 16
MAX_ENTRIES = 20 * limits.MAX_OUTPUT_FILES  # of any kind: bounds the worker's effort
MAX_PROBLEMS = 20
MAX_DISPLAYED_CHARACTERS = 200
READ_BYTES = MIB
JSON_SEPARATORS = ((",", ":"), (", ", ": "))  # the two usual styles
Store = Callable[[StoredOutput, IO[bytes]], None]


@dataclass(slots=True)
class CollectedOutputs:
    outputs: list[StoredOutput] = field(default_factory=list)
    result: object = None
    problems: list[str] = field(default_factory=list)
    omitted_problems: int = 0

    def report(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.omitted_problems += 1


def collect_outputs(directory: int, store: Store, masker: Masker | None = None) -> CollectedOutputs:
    """Store every acceptable file under this directory descriptor."""
    collected = CollectedOutputs()
    total = 0
    for name, descriptor in _OutputWalk(collected, masker).regular_files(directory, "", MAX_DEPTH):
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if len(collected.outputs) >= limits.MAX_OUTPUT_FILES:
                collected.report(f"more than {limits.MAX_OUTPUT_FILES} output files; the rest was left out")
                break
            if total + size > limits.MAX_OUTPUT_BYTES:
                collected.report(
                    f"{_format_path(name)}: outputs exceed {limits.MAX_OUTPUT_BYTES} bytes in all; left out"
                )
                continue
            digest = _hash_file(file, size)
            if digest is None:
                collected.report(f"{_format_path(name)}: changed while it was read; left out")
                continue
            total += size
            output = StoredOutput(name, size, digest)
            store(output, file)
            collected.outputs.append(output)
            if name == RESULT_FILE_NAME:
                _read_result(file, size, collected, masker)
    if collected.omitted_problems:
        collected.problems.append(f"and {collected.omitted_problems} more")
    return collected


class _OutputWalk:
    def __init__(self, collected: CollectedOutputs, masker: Masker | None) -> None:
        self._report = collected.report
        self._masker = masker
        self._left = MAX_ENTRIES

    def regular_files(self, directory: int, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
        """Yield the path and an open descriptor of each file; the caller closes the descriptor."""
        for name in self._names(directory):
            path = prefix + name
            self._left -= 1
            if self._left < 0:
                if self._left == -1:
                    self._report(f"more than {MAX_ENTRIES} files and directories; the rest was left out")
                return
            if self._masker is not None and (masked := self._masker.mask(path)) != path:
                self._report(f"{_format_path(masked)}: a secret in the name; left out")
                continue
            if not is_safe_name(name) or len(path) > MAX_PATH_LENGTH:
                self._report(f"{_format_path(path)}: not an acceptable file name; left out")
                continue
            try:
                found = _open_entry(name, directory, allow_directory=depth > 0)
            except OSError as error:
                self._report(f"{_format_path(path)}: {error.strerror}; left out")
                continue
            if found is None:
                self._report(f"{_format_path(path)}: neither a regular file nor a directory; left out")
            elif stat.S_ISREG(os.fstat(found).st_mode):
                yield path, found
            else:
                try:
                    yield from self.regular_files(found, f"{path}/", depth - 1)
                finally:
                    os.close(found)

    def _names(self, directory: int) -> list[str]:
        """Return the sorted names, limited to the entries left plus one, as there may be millions."""
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in islice(entries, max(0, self._left) + 1))


def _open_entry(name: str, directory: int, *, allow_directory: bool) -> int | None:
    """Open a regular file without hard links, or a directory if allowed; return None for everything else."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(handle)
        is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not is_file and not (allow_directory and stat.S_ISDIR(status.st_mode)):
            return None
        path = f"/proc/self/fd/{handle}"
        needed = 0o400 if is_file else 0o500
        if status.st_mode & needed != needed:
            # A worker that is not root owns the file, but may lack permission to read it.
            os.chmod(path, needed)
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def _format_path(path: str) -> str:
    """Escape and shorten an untrusted path for display."""
    text = path if path.isprintable() else repr(path.encode("utf-8", "backslashreplace"))
    return text if len(text) <= MAX_DISPLAYED_CHARACTERS else f"{text[:MAX_DISPLAYED_CHARACTERS]}…"


def _hash_file(file: IO[bytes], size: int) -> str | None:
    """Return the SHA-256; None if the size of the file has changed."""
    digest, left = hashlib.sha256(), size
    while piece := file.read(min(READ_BYTES, left + 1)):
        digest.update(piece)
        left -= len(piece)
        if left < 0:
            return None
    return None if left else digest.hexdigest()


def _read_result(file: IO[bytes], size: int, collected: CollectedOutputs, masker: Masker | None) -> None:
    if size > limits.MAX_RESULT_BYTES:
        collected.report(f"{RESULT_FILE_NAME}: larger than {limits.MAX_RESULT_BYTES} bytes; not taken as the result")
        return
    file.seek(0)
    try:
        result = json.loads(file.read().decode())  # json.loads would accept bytes in UTF-16 or UTF-32
        if not is_storable_json(result) or count_expanded_characters(result) > limits.MAX_RESULT_BYTES:
            raise ValueError(RESULT_FILE_NAME)
    except (ValueError, RecursionError):
        collected.report(f"{RESULT_FILE_NAME}: not valid JSON; not taken as the result")
        return
    if masker is not None:
        result = masker.mask_json(result)
        # A secret that is itself JSON may span several strings of the result.
        if any((text := json.dumps(result, separators=style)) != masker.mask(text) for style in JSON_SEPARATORS):
            collected.report(f"{RESULT_FILE_NAME}: a secret in it; not taken as the result")
            return
    collected.result = result
