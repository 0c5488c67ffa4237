"""A real supervisord with small processes: it restarts what dies, and nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_project.embedded.config import InternalPorts, Secrets, StackConfig
from scheduler_project.embedded.control import Supervisor
from scheduler_project.embedded.down import anything_runs, stop
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.leftovers import Identity, end_leftovers
from scheduler_project.embedded.locking import exclusively
from scheduler_project.embedded.preflight import prepare_directories
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.process import ProcessSpec
from scheduler_project.embedded.stack import Stack
from scheduler_project.embedded.supervision import start_supervisor
from tests.integration.embedded.processes import is_gone
from tests.waiting import eventually

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
            sleeper("worker", layout.var, "print('my last words', flush=True); raise SystemExit(3)"),
        ),
        environment={},
    )
    yield stack
    stop(layout)
    for child in CHILDREN:
        child.wait(10)
    CHILDREN.clear()


def begin(stack: Stack, *names: str) -> tuple[subprocess.Popen[bytes], Supervisor]:
    child = start_supervisor(stack, stays_behind=False)
    CHILDREN.append(child)
    supervisor = Supervisor(stack.layout, stack.config)
    assert eventually(supervisor.answers)
    supervisor.start(names)
    return child, supervisor


def pid_of(supervisor: Supervisor, name: str) -> int:
    return next(state.pid for state in supervisor.states() if state.name == name)


def require_for_ever(supervisor: Supervisor) -> bool:
    supervisor.require_alive(["web", "worker"])
    return False


def is_running(supervisor: Supervisor, name: str) -> bool:
    return any(state.name == name and state.is_running for state in supervisor.states())


def test_what_is_killed_runs_again(stack: Stack) -> None:
    _, supervisor = begin(stack, "web")
    assert eventually(lambda: is_running(supervisor, "web"))
    killed = pid_of(supervisor, "web")

    os.kill(killed, signal.SIGKILL)

    assert eventually(lambda: pid_of(supervisor, "web") not in (0, killed))
    supervisor.require_alive(["web"])


def test_what_keeps_dying_is_a_problem_with_its_last_words(stack: Stack) -> None:
    _, supervisor = begin(stack, "web", "worker")

    with pytest.raises(StackProblem, match="worker keeps ending") as caught:
        eventually(lambda: require_for_ever(supervisor))

    assert caught.value.log is not None
    assert "my last words" in caught.value.log.read_text()
    supervisor.require_alive(["web"])


def test_a_stranger_cannot_give_orders(stack: Stack) -> None:
    begin(stack)
    stranger = Supervisor(stack.layout, StackConfig(Secrets.generate(), stack.config.ports))

    assert not stranger.answers()


def test_stopping_leaves_nothing(stack: Stack) -> None:
    child, supervisor = begin(stack, "web")
    assert eventually(lambda: pid_of(supervisor, "web") != 0)
    web = pid_of(supervisor, "web")

    assert stop(stack.layout) == []

    assert child.wait(10) == 0
    assert is_gone(web)
    assert not anything_runs(stack.layout)


def test_nothing_outlives_a_killed_supervisor(stack: Stack) -> None:
    child, supervisor = begin(stack, "web")
    assert eventually(lambda: is_running(supervisor, "web"))
    web = pid_of(supervisor, "web")

    child.kill()
    child.wait(10)

    assert eventually(lambda: is_gone(web))


def test_what_ignored_the_end_of_its_supervisor_is_ended_by_the_next_stop(stack: Stack) -> None:
    layout = stack.layout
    stubborn = sleeper(
        "web",
        layout.var,
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);print('deaf', flush=True); time.sleep(600)",
    )
    command = stubborn.write(layout.run, record=layout.record("web"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"deaf\n"
        assert anything_runs(layout)

        assert end_leftovers({layout.record("web"): (signal.SIGTERM, 0.2)}) == ["web"]

    assert child.returncode == -signal.SIGKILL
    assert not layout.record("web").exists()


def test_a_process_that_got_the_same_pid_later_is_left_alone(stack: Stack) -> None:
    layout = stack.layout
    with subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE, process_group=0) as stranger:
        layout.record("web").write_text(f'{{"pid": {stranger.pid}, "started": 1}}')

        assert Identity.read(layout.record("web")) == Identity(stranger.pid, 1)
        assert not anything_runs(layout)
        assert end_leftovers({layout.record("web"): (signal.SIGKILL, 1.0)}) == []
        assert stranger.poll() is None
        stranger.communicate(b"\n", timeout=10)
    assert stranger.returncode == 0


def test_two_starts_at_once_are_refused(stack: Stack) -> None:
    with (
        exclusively(stack.layout),
        pytest.raises(StackProblem, match=r"Another `\./punctual up`"),
        exclusively(stack.layout),
    ):
        pass
    with exclusively(stack.layout):
        pass


def test_a_log_that_cannot_be_written_ends_nothing(stack: Stack) -> None:
    """On a full disk every write fails; so it does on this device."""
    stack.layout.log("supervisord").symlink_to("/dev/full")
    child, supervisor = begin(stack, "web")
    assert eventually(lambda: is_running(supervisor, "web"))
    killed = pid_of(supervisor, "web")

    os.kill(killed, signal.SIGKILL)

    assert eventually(lambda: is_running(supervisor, "web") and pid_of(supervisor, "web") != killed)
    assert child.poll() is None
