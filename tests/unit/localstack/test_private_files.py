from __future__ import annotations

import stat
from pathlib import Path

import pytest

from scheduler_project.localstack.private_files import make_private_directory, write_private


def test_file_is_replaced_atomically_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old and public")
    path.chmod(0o644)

    write_private(path, "new")

    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_directory_is_private_and_may_exist(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"

    assert make_private_directory(make_private_directory(path)) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
