"""Real processes through `launch.py`: identity, environment, and death with the parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scheduler_project.localstack.processes.launch import read_start_time
from scheduler_project.localstack.processes.spec import ProcessSpec
from tests.integration.localstack.processes import is_gone
from tests.support.waiting import eventually

PYTHON = os.path.realpath(sys.executable)


def spec(directory: Path, code: str, **changes: object) -> ProcessSpec:
    values: dict[str, object] = {
        "name": "probe",
        "argv": (PYTHON, "-I", "-S", "-c", code),
        "environment": {"GIVEN": "value"},
        "directory": directory,
    }
    return ProcessSpec(**{**values, **changes})  # type: ignore[arg-type]


def output(process: ProcessSpec, directory: Path) -> str:
    done = subprocess.run(process.write(directory), capture_output=True, text=True, timeout=30, check=True)
    return done.stdout


def test_process_gets_only_its_environment_and_directory(tmp_path: Path) -> None:
    code = "import os, json; print(json.dumps([os.getcwd(), sorted(os.environ)]))"

    cwd, names = json.loads(output(spec(tmp_path, code), tmp_path))

    assert cwd == str(tmp_path)
    assert set(names) - {"LC_CTYPE"} == {"GIVEN"}


def test_process_is_mapped_to_another_user(tmp_path: Path) -> None:
    code = "import os; print(os.getuid(), os.getgid(), os.stat('.').st_uid)"

    assert output(spec(tmp_path, code, map_to=(4321, 1234)), tmp_path).split() == ["4321", "1234", "4321"]


def test_private_tmp_shows_only_visible_paths() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as shared, tempfile.NamedTemporaryFile(dir="/tmp") as file:
        directory = Path(shared)
        (directory / "kept").write_text("here")
        code = (
            "import os; open('/tmp/written', 'w').close(); open('also', 'w').close();"
            "print(sorted(os.listdir('/tmp')), open('kept').read())"
        )

        seen = output(spec(directory, code, private_tmp=True, visible=(directory,)), directory)

        assert seen == f"{sorted([directory.name, 'written'])} here\n"
        assert Path(file.name).name not in seen
        assert (directory / "also").exists()
        assert not Path("/tmp/written").exists()


def test_process_writes_its_record(tmp_path: Path) -> None:
    record = tmp_path / "probe.pid"
    command = spec(tmp_path, "input()").write(tmp_path, record=record)

    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert eventually(record.exists)
        assert json.loads(record.read_text()) == {"pid": child.pid, "started": read_start_time(child.pid)}
        child.communicate(b"\n", timeout=10)


@pytest.mark.parametrize(
    "changes", [{}, {"map_to": (4321, 4321)}, {"private_tmp": True}], ids=["plain", "mapped", "private tmp"]
)
def test_process_dies_with_its_parent(tmp_path: Path, changes: dict[str, object]) -> None:
    record = tmp_path / "probe.pid"
    process = spec(tmp_path, "import time; time.sleep(60)", visible=(tmp_path,), **changes)
    command = process.write(tmp_path, record=record)
    code = f"import subprocess; subprocess.Popen({command!r}); input()"
    with subprocess.Popen([PYTHON, "-c", code], stdin=subprocess.PIPE) as parent:
        assert eventually(record.exists)
        child = json.loads(record.read_text())["pid"]
        assert eventually(lambda: b"sleep(60)" in cmdline(child))
        parent.kill()

    assert eventually(lambda: is_gone(child))


def test_detached_process_survives_its_parent(tmp_path: Path) -> None:
    record = tmp_path / "probe.pid"
    command = spec(tmp_path, "import time; time.sleep(60)", ends_with_parent=False).write(tmp_path, record=record)
    code = f"import subprocess; subprocess.Popen({command!r}, start_new_session=True); input()"
    with subprocess.Popen([PYTHON, "-c", code], stdin=subprocess.PIPE) as parent:
        assert eventually(record.exists)
        child = json.loads(record.read_text())["pid"]
        assert eventually(lambda: b"sleep(60)" in cmdline(child))
        parent.kill()
        parent.wait(10)

    assert not is_gone(child)
    os.kill(child, signal.SIGTERM)
    assert eventually(lambda: is_gone(child))


def test_children_of_a_killed_earlier_instance_are_killed(tmp_path: Path) -> None:
    record = tmp_path / "probe.pid"
    orphan = tmp_path / "orphan"
    code = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([{PYTHON!r}, '-c', 'import time; time.sleep(60)']);"
        f"f = open({str(orphan)!r}, 'w'); f.write(str(p.pid)); f.close(); time.sleep(60)"
    )
    command = spec(tmp_path, code, kills_previous_group=True).write(tmp_path, record=record)
    with subprocess.Popen(command, process_group=0) as first:
        assert eventually(lambda: orphan.exists() and orphan.read_text() != "")
        left = int(orphan.read_text())
        first.kill()
    assert not is_gone(left)

    with subprocess.Popen(command, process_group=0) as second:
        assert eventually(lambda: is_gone(left))
        os.killpg(second.pid, signal.SIGKILL)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""
