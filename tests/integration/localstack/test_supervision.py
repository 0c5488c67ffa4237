"""Real supervisord with small processes: it restarts them, and none outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_project.localstack.commands.down import is_anything_running, stop_all
from scheduler_project.localstack.config import InternalPorts, Secrets, StackConfig
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.processes.records import ProcessRecord, stop_leftover_processes
from scheduler_project.localstack.processes.spec import ProcessSpec
from scheduler_project.localstack.stack import Stack
from scheduler_project.localstack.stack_lock import hold_stack_lock
from scheduler_project.localstack.startup.preflight import prepare_directories
from scheduler_project.localstack.supervisor.client import SupervisorClient
from scheduler_project.localstack.supervisor.configuration import start_supervisor
from tests.integration.localstack.processes import is_gone
from tests.support.waiting import eventually

CHILDREN: list[subprocess.Popen[bytes]] = []
PYTHON = os.path.realpath(sys.executable)


def sleeper(name: str, directory: Path, code: str = "import time; time.sleep(600)") -> ProcessSpec:
    return ProcessSpec(name=name, argv=(PYTHON, "-I", "-c", code), environment={}, directory=directory)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    layout = Layout(var=tmp_path / "it's a ;%d #path ünï" / "var")
    prepare_directories(layout)
    config = StackConfig(Secrets.generate(), InternalPorts.pick())
    config.write(layout.config)
    stack = Stack(
        layout=layout,
        config=config,
        engines=(),
        applications=(
            sleeper("web", layout.var),
            sleeper("worker", layout.var, "print('crash message', flush=True); raise SystemExit(3)"),
        ),
        environment={},
    )
    yield stack
    stop_all(layout)
    for child in CHILDREN:
        child.wait(10)
    CHILDREN.clear()


def start(stack: Stack, *names: str) -> tuple[subprocess.Popen[bytes], SupervisorClient]:
    child = start_supervisor(stack, stays_behind=False)
    CHILDREN.append(child)
    supervisor = SupervisorClient(stack.layout, stack.config)
    assert eventually(supervisor.answers)
    supervisor.start(names)
    return child, supervisor


def get_pid(supervisor: SupervisorClient, name: str) -> int:
    return next(state.pid for state in supervisor.states() if state.name == name)


def require_alive(supervisor: SupervisorClient) -> bool:
    supervisor.require_alive(["web", "worker"])
    return False


def is_running(supervisor: SupervisorClient, name: str) -> bool:
    return any(state.name == name and state.is_running for state in supervisor.states())


def test_killed_process_is_restarted(stack: Stack) -> None:
    _, supervisor = start(stack, "web")
    assert eventually(lambda: is_running(supervisor, "web"))
    killed = get_pid(supervisor, "web")

    os.kill(killed, signal.SIGKILL)

    assert eventually(lambda: get_pid(supervisor, "web") not in (0, killed))
    supervisor.require_alive(["web"])


def test_crash_loop_is_reported_with_the_log(stack: Stack) -> None:
    _, supervisor = start(stack, "web", "worker")

    with pytest.raises(StackError, match="worker keeps exiting") as caught:
        eventually(lambda: require_alive(supervisor))

    assert caught.value.log is not None
    assert "crash message" in caught.value.log.read_text()
    supervisor.require_alive(["web"])


def test_supervisor_requires_the_password(stack: Stack) -> None:
    start(stack)
    unrelated = SupervisorClient(stack.layout, StackConfig(Secrets.generate(), stack.config.ports))

    assert not unrelated.answers()


def test_stop_leaves_nothing_running(stack: Stack) -> None:
    child, supervisor = start(stack, "web")
    assert eventually(lambda: get_pid(supervisor, "web") != 0)
    web = get_pid(supervisor, "web")

    assert stop_all(stack.layout) == []

    assert child.wait(10) == 0
    assert is_gone(web)
    assert not is_anything_running(stack.layout)


def test_processes_die_with_a_killed_supervisor(stack: Stack) -> None:
    child, supervisor = start(stack, "web")
    assert eventually(lambda: is_running(supervisor, "web"))
    web = get_pid(supervisor, "web")

    child.kill()
    child.wait(10)

    assert eventually(lambda: is_gone(web))


def test_survivor_of_a_supervisor_is_killed_by_the_next_stop(stack: Stack) -> None:
    layout = stack.layout
    ignoring = sleeper(
        "web",
        layout.var,
        "from signal import *; import time; signal(SIGTERM, SIG_IGN); print('ready', flush=True); time.sleep(600)",
    )
    command = ignoring.write(layout.run, record=layout.record("web"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert is_anything_running(layout)

        assert stop_leftover_processes({layout.record("web"): (signal.SIGTERM, 0.2)}) == ["web"]

    assert child.returncode == -signal.SIGKILL
    assert not layout.record("web").exists()


def test_reused_pid_is_left_alone(stack: Stack) -> None:
    layout = stack.layout
    with subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE, process_group=0) as unrelated:
        layout.record("web").write_text(f'{{"pid": {unrelated.pid}, "started": 1}}')

        assert ProcessRecord.read(layout.record("web")) == ProcessRecord(unrelated.pid, 1)
        assert not is_anything_running(layout)
        assert stop_leftover_processes({layout.record("web"): (signal.SIGKILL, 1.0)}) == []
        assert unrelated.poll() is None
        unrelated.communicate(b"\n", timeout=10)
    assert unrelated.returncode == 0


def test_concurrent_start_is_refused(stack: Stack) -> None:
    with (
        hold_stack_lock(stack.layout),
        pytest.raises(StackError, match=r"Another `\./punctual up`"),
        hold_stack_lock(stack.layout),
    ):
        pass
    with hold_stack_lock(stack.layout):
        pass


def test_unwritable_log_ends_nothing(stack: Stack) -> None:
    """Every write to this device fails, as on a full disk."""
    stack.layout.log("supervisord").symlink_to("/dev/full")
    child, supervisor = start(stack, "web")
    assert eventually(lambda: is_running(supervisor, "web"))
    killed = get_pid(supervisor, "web")

    os.kill(killed, signal.SIGKILL)

    assert eventually(lambda: is_running(supervisor, "web") and get_pid(supervisor, "web") != killed)
    assert child.poll() is None
