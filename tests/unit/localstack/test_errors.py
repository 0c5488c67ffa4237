from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from scheduler_project.localstack.errors import describe_os_error

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
def test_os_error_names_cause_place_and_remedy(number: int, words: str) -> None:
    error = describe_os_error(OSError(number, os.strerror(number), f"{VAR}/run"), VAR)

    assert words in error.sentence
    assert str(VAR) in error.sentence
    assert "PUNCTUAL_VAR" in error.sentence
    assert "\n" not in error.sentence


def test_other_os_errors_become_one_sentence() -> None:
    error = describe_os_error(OSError(errno.EIO, "Input/output error", "/srv/disk"), VAR)

    assert error.sentence == "/srv/disk could not be used: Input/output error."
