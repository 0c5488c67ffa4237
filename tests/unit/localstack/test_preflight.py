from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import iter_free_ports
from scheduler_project.localstack.startup import preflight


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    ports = iter_free_ports()
    return Layout(var=tmp_path / "var", web_port=next(ports), flower_port=next(ports))


def test_directories_are_private(layout: Layout) -> None:
    preflight.prepare_directories(layout)
    preflight.prepare_directories(layout)

    for directory in (layout.var, layout.run, layout.logs):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert list(layout.run.iterdir()) == []


def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        foreign = tmp_path / "var"
        foreign.mkdir()
        os.chown(foreign, 65534, 65534)
    else:
        foreign = Path("/usr")

    with pytest.raises(StackError, match=r"belongs to \w+, and you are .*PUNCTUAL_VAR"):
        preflight.prepare_directories(Layout(var=foreign))


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("")

    with pytest.raises(StackError, match="is not a directory"):
        preflight.prepare_directories(Layout(var=tmp_path / "var"))


def test_unwritable_place_is_refused() -> None:
    with pytest.raises(StackError, match=r"/proc/punctual"):
        preflight.prepare_directories(Layout(var=Path("/proc/punctual")))


def test_almost_full_disk_is_refused(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.var.mkdir()
    more_than_there_is = shutil.disk_usage(layout.var).total + 1
    monkeypatch.setattr(preflight, "MIN_FREE_BYTES", more_than_there_is)

    with pytest.raises(StackError, match="MiB left, and the stack needs"):
        preflight.prepare_directories(layout)


def test_free_ports_pass(layout: Layout) -> None:
    preflight.require_ports(layout)


def test_taken_port_is_refused_with_its_variable(layout: Layout) -> None:
    with (
        socket.create_server(("127.0.0.1", layout.web_port)),
        pytest.raises(StackError, match=f"port {layout.web_port}.*set PUNCTUAL_WEB_PORT"),
    ):
        preflight.require_ports(layout)
    with (
        socket.create_server(("127.0.0.1", layout.flower_port)),
        pytest.raises(StackError, match=f"port {layout.flower_port}.*set PUNCTUAL_FLOWER_PORT"),
    ):
        preflight.require_ports(layout)


def test_same_port_for_two_servers_is_refused(layout: Layout) -> None:
    with pytest.raises(StackError, match="are both"):
        preflight.require_ports(Layout(layout.var, web_port=layout.web_port, flower_port=layout.web_port))
