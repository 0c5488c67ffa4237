"""Discovery and files of cgroups, on directories laid out as by the kernel."""

from pathlib import Path

import pytest

from workers.sandbox.cgroups import files, v1, v2
from workers.sandbox.values import Limits

LIMITS = Limits(wall_seconds=1, memory_bytes=1000, disk_bytes=24, cpus=0.5, processes=9)


def _v2_directory(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def _v2_mount(point: Path, root: str = "/") -> str:
    return f"30 23 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"


def test_v2_parent_is_the_workers_delegated_cgroup(tmp_path: Path) -> None:
    own = _v2_directory(
        tmp_path / "user.slice/worker", cgroup__controllers="cpu memory pids", cgroup__subtree_control=""
    )
    assert v2.find_parent("0::/user.slice/worker\n", _v2_mount(tmp_path)) == own
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_v2_parent_in_container_is_relative_to_the_mount(tmp_path: Path) -> None:
    own = _v2_directory(tmp_path / "a", cgroup__controllers="memory", cgroup__subtree_control="memory")
    assert v2.find_parent("0::/docker/x/a\n", _v2_mount(tmp_path, "/docker/x")) == own


def test_v2_parent_of_worker_in_leaf_is_the_leafs_parent(tmp_path: Path) -> None:
    own = _v2_directory(tmp_path / "w", cgroup__controllers="memory", cgroup__subtree_control="memory")
    assert v2.find_parent("0::/w/punctual-agent\n", _v2_mount(tmp_path)) == own


def test_v2_without_memory_controller_is_not_used(tmp_path: Path) -> None:
    _v2_directory(tmp_path / "w", cgroup__controllers="hugetlb", cgroup__subtree_control="")
    assert v2.find_parent("0::/w\n", _v2_mount(tmp_path)) is None
    assert v2.find_parent("0::/gone\n", _v2_mount(tmp_path)) is None
    assert v2.find_parent("1:memory:/\n", "") is None


def test_v2_limits_and_readings(tmp_path: Path) -> None:
    path = _v2_directory(
        tmp_path / "run",
        memory__max="max",
        memory__swap__max="max",
        pids__max="max",
        cpu__max="max 100000",
        memory__current="1000",
        memory__peak="9000",
        memory__events="low 0\noom 3\noom_kill 2\n",
        memory__stat="anon 77\nfile 5\n",
        cpu__stat="usage_usec 1500000\n",
    )
    cgroup = v2.CgroupV2(path)
    cgroup.limit(LIMITS)
    assert (path / "cpu.max").read_text() == "max 100000", "no CPU quota while the sandbox is built"
    cgroup.begin(LIMITS)
    names = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "memory.peak")
    assert {name: (path / name).read_text() for name in names} == {
        "memory.max": str(1024 + files.SLOT_MEMORY_BYTES),
        "memory.swap.max": "0",
        "pids.max": str(9 + files.SLOT_PROCESSES),
        "cpu.max": "50000 100000",
        "memory.peak": "reset\n",
    }
    (path / "memory.peak").write_text("5000\n")
    (path / "memory.stat").write_text("anon 177\n")
    (path / "cpu.stat").write_text("usage_usec 4000000\n")
    assert cgroup.process_memory() == 100
    assert not cgroup.out_of_memory(), "usage of an earlier run does not count"
    assert (cgroup.usage().cpu_seconds, cgroup.usage().peak_memory_bytes) == (2.5, 4000)
    (path / "memory.events").write_text("oom_kill 3\n")
    assert cgroup.out_of_memory()
    cgroup.end()
    assert (path / "cpu.max").read_text() == "max 100000"


def test_lifetime_peak_counts_only_if_it_grew(tmp_path: Path) -> None:
    path = _v2_directory(
        tmp_path / "run", memory__max="", memory__current="1000", memory__events="", memory__stat="", cpu__stat=""
    )
    cgroup = v2.CgroupV2(path)
    cgroup.limit(LIMITS)
    cgroup.begin(LIMITS)
    assert cgroup.usage().peak_memory_bytes is None
    (path / "memory.peak").write_text("5000\n")
    assert cgroup.usage().peak_memory_bytes == 4000


def test_v1_has_one_directory_per_hierarchy(tmp_path: Path) -> None:
    for name in ("memory/w", "cpu,cpuacct", "pids"):
        (tmp_path / name).mkdir(parents=True)
    mounts = "".join(
        f"3{n} 23 0:2{n} / {tmp_path}/{point} rw - cgroup cgroup rw,{options}\n"
        for n, (point, options) in enumerate(
            [("memory", "memory"), ("cpu,cpuacct", "cpu,cpuacct"), ("pids", "pids"), ("devices", "devices")]
        )
    )
    membership = "4:memory:/w\n3:cpu,cpuacct:/\n2:pids:/gone\n1:devices:/\n0::/\n"
    assert v1.find_parents(membership, mounts) == {
        "memory": tmp_path / "memory/w",
        "cpu": tmp_path / "cpu,cpuacct",
    }


@pytest.mark.parametrize(("text", "value"), [("anon 5\nanonx 6\n", 5), ("anonx 6\n", 0), ("", 0)])
def test_field_is_matched_by_its_whole_name(text: str, value: int) -> None:
    assert files.read_field(text, "anon") == value
