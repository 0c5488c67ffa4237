"""Collects what a run left in `out/`, by descriptor.

Everything there was made by a stranger. Only regular files are read, no link is followed, no name leaves the directory,
and both count and size are capped; what breaks a rule is reported, not collected.
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

RESULT_NAME = "result.json"
MAX_DEPTH = 16
READ_BYTES = 1024 * 1024
Store = Callable[[StoredOutput, IO[bytes]], None]


@dataclass(slots=True)
class Collected:
    outputs: list[StoredOutput] = field(default_factory=list)
    result: object = None
    problems: list[str] = field(default_factory=list)


def collect_outputs(directory: int, store: Store) -> Collected:
    """Stores every acceptable file under the given directory descriptor."""
    collected = Collected()
    total = 0
    for name, descriptor in _regular_files(directory, "", collected.problems, MAX_DEPTH):
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if len(collected.outputs) >= conf.MAX_OUTPUT_FILES:
                collected.problems.append(f"more than {conf.MAX_OUTPUT_FILES} output files; the rest was left out")
                break
            if total + size > conf.MAX_OUTPUT_BYTES:
                collected.problems.append(f"{name}: outputs exceed {conf.MAX_OUTPUT_BYTES} bytes in all; left out")
                continue
            total += size
            output = StoredOutput(name, size, _digest(file))
            store(output, file)
            collected.outputs.append(output)
            if name == RESULT_NAME:
                _read_result(file, size, collected)
    return collected


def _regular_files(directory: int, prefix: str, problems: list[str], depth: int) -> Iterator[tuple[str, int]]:
    for name in sorted(os.listdir(directory)):
        path = prefix + name
        if not is_safe_name(name) or len(path) > MAX_PATH_LENGTH:
            problems.append(f"{path.encode('utf-8', 'backslashreplace')!r}: not an acceptable file name; left out")
            continue
        try:
            # O_NONBLOCK: opening a FIFO that nobody writes to must not wait.
            descriptor = os.open(
                name,
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC,
                dir_fd=directory,
            )
        except OSError as error:
            problems.append(f"{path}: {error.strerror}; left out")
            continue
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            yield path, descriptor
            continue
        try:
            if stat.S_ISDIR(status.st_mode) and depth > 0:
                yield from _regular_files(descriptor, f"{path}/", problems, depth - 1)
            else:
                problems.append(f"{path}: neither a regular file nor a directory; left out")
        finally:
            os.close(descriptor)


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := file.read(READ_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _read_result(file: IO[bytes], size: int, collected: Collected) -> None:
    if size > conf.MAX_RESULT_BYTES:
        collected.problems.append(f"{RESULT_NAME}: larger than {conf.MAX_RESULT_BYTES} bytes; not taken as the result")
        return
    file.seek(0)
    try:
        result = json.loads(file.read())
        if not is_storable_json(result) or printed_excess(result) > conf.MAX_RESULT_BYTES:
            raise ValueError(RESULT_NAME)
        collected.result = result
    except (ValueError, RecursionError):
        collected.problems.append(f"{RESULT_NAME}: not valid JSON; not taken as the result")
