from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from scheduler_project.embedded.problems import describe_os_error

VAR = Path("/srv/punctual/var")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no disk space"),
        (errno.EDQUOT, "no disk space"),
        (errno.EROFS, "read-only file system"),
        (errno.EACCES, "cannot be used by this user"),
        (errno.ENOTDIR, "is not a directory"),
    ],
)
def test_it_says_what_happened_where_and_what_to_do(number: int, words: str) -> None:
    problem = describe_os_error(OSError(number, os.strerror(number), f"{VAR}/run"), VAR)

    assert words in problem.sentence
    assert str(VAR) in problem.sentence
    assert "PUNCTUAL_VAR" in problem.sentence
    assert "\n" not in problem.sentence


def test_any_other_error_is_still_a_sentence() -> None:
    problem = describe_os_error(OSError(errno.EIO, "Input/output error", "/srv/disk"), VAR)

    assert problem.sentence == "/srv/disk could not be used: Input/output error."
