from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest

from scheduler_project.embedded import preflight
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.ports import free_ports
from scheduler_project.embedded.problems import StackProblem


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    ports = free_ports()
    return Layout(var=tmp_path / "var", web_port=next(ports), flower_port=next(ports))


def test_directories_are_made_for_their_owner_only(layout: Layout) -> None:
    preflight.prepare_directories(layout)
    preflight.prepare_directories(layout)

    for directory in (layout.var, layout.run, layout.logs):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert list(layout.run.iterdir()) == []


def test_a_directory_of_another_user_is_refused_by_name(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        foreign = tmp_path / "var"
        foreign.mkdir()
        os.chown(foreign, 65534, 65534)
    else:
        foreign = Path("/usr")

    with pytest.raises(StackProblem, match=r"belongs to \w+, and you are .*PUNCTUAL_VAR"):
        preflight.prepare_directories(Layout(var=foreign))


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("")

    with pytest.raises(StackProblem, match="is not a directory"):
        preflight.prepare_directories(Layout(var=tmp_path / "var"))


def test_a_place_that_cannot_be_written_is_named() -> None:
    with pytest.raises(StackProblem, match=r"/proc/punctual"):
        preflight.prepare_directories(Layout(var=Path("/proc/punctual")))


def test_a_disk_that_is_almost_full_is_refused(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.var.mkdir()
    more_than_there_is = shutil.disk_usage(layout.var).total + 1
    monkeypatch.setattr(preflight, "NEEDED_BYTES", more_than_there_is)

    with pytest.raises(StackProblem, match="MiB left, and the stack needs"):
        preflight.prepare_directories(layout)


def test_free_ports_pass(layout: Layout) -> None:
    preflight.require_ports(layout)


def test_a_taken_port_is_named_with_its_variable(layout: Layout) -> None:
    with (
        socket.create_server(("127.0.0.1", layout.web_port)),
        pytest.raises(StackProblem, match=f"port {layout.web_port}.*set PUNCTUAL_WEB_PORT"),
    ):
        preflight.require_ports(layout)
    with (
        socket.create_server(("127.0.0.1", layout.flower_port)),
        pytest.raises(StackProblem, match=f"port {layout.flower_port}.*set PUNCTUAL_FLOWER_PORT"),
    ):
        preflight.require_ports(layout)


def test_one_port_for_two_servers_is_refused(layout: Layout) -> None:
    with pytest.raises(StackProblem, match="are both"):
        preflight.require_ports(Layout(layout.var, web_port=layout.web_port, flower_port=layout.web_port))
