"""Capacity: configured or measured, and never more than the machine has."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from workers.configuration import WorkerSettings
from workers.lease import capacity
from workers.lease.capacity import describe_host, measure_capacity
from workers.sandbox.host import Host
from workers.sandbox.runtimes import Interpreter
from workers.sandbox.values import MIB


@pytest.fixture
def silent(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings(None, "default", None, None, None, None, str(tmp_path), 30, 100)


def test_configured_capacity_is_used(silent: WorkerSettings) -> None:
    settings = replace(silent, name="alpha", slots=3, cpu=1.5, memory_mb=512, disk_mb=64)
    measured = measure_capacity(settings)
    assert (measured.name, measured.slots, measured.cpu) == ("alpha", 3, 1.5)
    assert (measured.memory_mb, measured.disk_mb) == (512, 64)


def test_other_capacity_is_measured(silent: WorkerSettings) -> None:
    measured = measure_capacity(silent)
    assert measured.name == measured.host == socket.gethostname()
    assert measured.cpu == len(os.sched_getaffinity(0))
    assert measured.slots >= 2
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    assert 0 < measured.memory_mb < physical
    assert 0 < measured.disk_mb <= shutil.disk_usage(silent.state_dir).free // MIB
    assert measured.disk_mb <= measured.memory_mb, "the disk of a run is memory"


def test_resources_come_from_settings(silent: WorkerSettings) -> None:
    assert measure_capacity(silent).resources == {}
    assert measure_capacity(replace(silent, resources={"gpu": 2})).resources == {"gpu": 2}


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_workers_on_host_share_its_capacity(silent: WorkerSettings, workers: int) -> None:
    alone, sharing = measure_capacity(silent), measure_capacity(replace(silent, workers_on_host=workers))
    assert 0.9 * alone.cpu < sharing.cpu * workers <= alone.cpu
    assert 0.9 * alone.memory_mb < sharing.memory_mb * workers <= alone.memory_mb
    # Other processes write to the same disk meanwhile.
    assert sharing.disk_mb * workers <= alone.disk_mb * 1.05
    assert sharing.slots <= alone.slots


def test_configured_capacity_is_not_divided(silent: WorkerSettings) -> None:
    settings = replace(silent, slots=3, cpu=1.5, memory_mb=512, disk_mb=64, resources={"gpu": 2}, workers_on_host=4)
    measured = measure_capacity(settings)
    assert (measured.slots, measured.cpu, measured.memory_mb, measured.disk_mb) == (3, 1.5, 512, 64)
    assert measured.resources == {"gpu": 2}


def test_description_covers_the_whole_machine() -> None:
    host = Host(Path("/usr/bin/bwrap"), "0.11.0", None)
    described = describe_host(host, {"python": Interpreter("python", "/usr/bin/python3", "3.11.2")})
    assert described["runtimes"] == {"python": "3.11.2"}
    assert (described["bubblewrap"], described["cgroups"], described["network"]) == ("0.11.0", "none", False)
    assert described["cpus"] == len(os.sched_getaffinity(0))
    memory = described["memory_mb"]
    assert isinstance(memory, int)
    assert memory > 0


@pytest.mark.parametrize(
    ("version", "is_old"), [("0.8.0", True), ("0.11.9", True), ("0.12.0", False), ("1.0.0", False)]
)
def test_bubblewrap_older_than_the_fix_is_warned_about(version: str, is_old: bool) -> None:
    described = describe_host(Host(Path("/usr/bin/bwrap"), version, None), {})
    assert ("bubblewrap_warning" in described) == is_old
    if is_old:
        warning = str(described["bubblewrap_warning"])
        assert f"bubblewrap {version}" in warning
        assert "CVE-2026-87766" in warning
        assert "update it, or make sure that your distribution has backported the fix" in warning


def test_fraction_of_a_cpu_has_two_slots(silent: WorkerSettings) -> None:
    assert measure_capacity(replace(silent, cpu=0.1)).slots == 2


@pytest.mark.parametrize(("text", "limit"), [("1048576\n", 1048576), ("max\n", None), ("", None)])
def test_container_memory_limit_is_read(tmp_path: Path, text: str, limit: int | None) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert capacity._read_limit(str(tmp_path / "memory.max")) == limit
    assert capacity._read_limit(str(tmp_path / "absent")) is None
