"""What a machine offers: measured where the operator is silent, and never more than there is."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from workers import capacity
from workers.capacity import MEGABYTE, describe_host, measure_capacity
from workers.configuration import WorkerSettings
from workers.sandbox import Host, Interpreter


@pytest.fixture
def silent(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings(None, "default", None, None, None, None, str(tmp_path), 30, 100)


def test_what_the_operator_says_is_taken(silent: WorkerSettings) -> None:
    said = replace(silent, name="alpha", slots=3, cpu=1.5, memory_mb=512, disk_mb=64)
    measured = measure_capacity(said)
    assert (measured.name, measured.slots, measured.cpu) == ("alpha", 3, 1.5)
    assert (measured.memory_mb, measured.disk_mb) == (512, 64)


def test_the_rest_is_measured(silent: WorkerSettings) -> None:
    measured = measure_capacity(silent)
    assert measured.name == measured.host == socket.gethostname()
    assert measured.cpu == len(os.sched_getaffinity(0))
    assert measured.slots >= 2
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEGABYTE
    assert 0 < measured.memory_mb < physical
    assert 0 < measured.disk_mb <= shutil.disk_usage(silent.state_dir).free // MEGABYTE
    assert measured.disk_mb <= measured.memory_mb, "a run's disk is memory of this machine"


def test_what_else_there_is_only_the_operator_knows(silent: WorkerSettings) -> None:
    assert measure_capacity(silent).resources == {}
    assert measure_capacity(replace(silent, resources={"gpu": 2})).resources == {"gpu": 2}


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_workers_that_share_a_machine_offer_no_more_than_there_is(silent: WorkerSettings, workers: int) -> None:
    alone, sharing = measure_capacity(silent), measure_capacity(replace(silent, on_host=workers))
    assert 0.9 * alone.cpu < sharing.cpu * workers <= alone.cpu
    assert 0.9 * alone.memory_mb < sharing.memory_mb * workers <= alone.memory_mb
    # Others write to the same disk while this is measured.
    assert sharing.disk_mb * workers <= alone.disk_mb * 1.05
    assert sharing.slots <= alone.slots


def test_what_the_operator_says_is_not_divided(silent: WorkerSettings) -> None:
    said = replace(silent, slots=3, cpu=1.5, memory_mb=512, disk_mb=64, resources={"gpu": 2}, on_host=4)
    measured = measure_capacity(said)
    assert (measured.slots, measured.cpu, measured.memory_mb, measured.disk_mb) == (3, 1.5, 512, 64)
    assert measured.resources == {"gpu": 2}


def test_the_machine_is_described_with_its_versions_whatever_part_of_it_is_offered() -> None:
    host = Host(Path("/usr/bin/bwrap"), "0.11.0", None, None)
    described = describe_host(host, {"python": Interpreter("python", "/usr/bin/python3", "3.11.2")})
    assert described["runtimes"] == {"python": "3.11.2"}
    assert (described["bubblewrap"], described["cgroups"], described["network"]) == ("0.11.0", "none", False)
    assert described["cpus"] == len(os.sched_getaffinity(0))
    memory = described["memory_mb"]
    assert isinstance(memory, int)
    assert memory > 0


def test_even_a_fraction_of_a_cpu_has_two_slots(silent: WorkerSettings) -> None:
    assert measure_capacity(replace(silent, cpu=0.1)).slots == 2


@pytest.mark.parametrize(("text", "limit"), [("1048576\n", 1048576), ("max\n", None), ("", None)])
def test_a_limit_of_a_container_is_read(tmp_path: Path, text: str, limit: int | None) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert capacity._read_limit(str(tmp_path / "memory.max")) == limit
    assert capacity._read_limit(str(tmp_path / "absent")) is None
