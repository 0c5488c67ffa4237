"""Guardian: kills its sandboxes when the lease is not renewed or the worker exits; with real processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from workers.errors import GuardianUnavailable
from workers.lease import guardian as guardian_module
from workers.lease.guardian import GuardedRun, Guardian
from workers.lease.guardian_process import GUARD, GuardedSandboxes, boottime
from workers.sandbox.sidecar import Sidecar

ROOT = Path(__file__).resolve().parents[4]
FOREVER = 600.0
SOON = 0.4
DEADLINE = 20.0

WORKER = """
import os, subprocess, sys
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime
guardian = Guardian(600)
guardian.lease_renewed(boottime())
child = subprocess.Popen(["sleep", "1000"])
with guardian.guard_run() as run:
    run.admit(os.pidfd_open(child.pid))
    print(child.pid, guardian.pid, flush=True)
    sys.stdin.read()
"""


class Guarded:
    """A process that stands in for a sandbox."""

    def __init__(self, stack: ExitStack) -> None:
        self._process = subprocess.Popen(["sleep", "1000"])
        stack.callback(self.end)
        self.pidfd = os.pidfd_open(self._process.pid)
        stack.callback(os.close, self.pidfd)

    def end(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)

    def dies_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def trusted(stack: ExitStack, limit: float, sent_at: float | None = None) -> Guardian:
    guardian = Guardian(limit)
    stack.callback(guardian.close)
    guardian.lease_renewed(boottime() if sent_at is None else sent_at)
    return guardian


def admitted(stack: ExitStack, guardian: Guardian) -> tuple[Guarded, GuardedRun]:
    guarded, guarded_run = Guarded(stack), stack.enter_context(guardian.guard_run())
    guarded_run.admit(guarded.pidfd)
    return guarded, guarded_run


def test_expired_sandbox_is_killed_and_reported_as_killed(stack: ExitStack) -> None:
    guardian = trusted(stack, SOON)
    both = [admitted(stack, guardian) for _ in range(2)]
    for guarded, guarded_run in both:
        assert guarded.dies_within(DEADLINE)
        assert guarded_run.was_killed()
    assert guardian.expired()


def test_limit_counts_from_when_the_renewal_was_sent(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER, sent_at=boottime() - FOREVER - 1)
    guarded, _ = admitted(stack, guardian)
    assert guarded.dies_within(DEADLINE)


def test_renewals_keep_sandbox_alive_even_out_of_order(stack: ExitStack) -> None:
    guardian = trusted(stack, 2)
    guarded, guarded_run = admitted(stack, guardian)
    began = boottime()
    wait_for(lambda: guardian.lease_renewed(boottime()) or boottime() - began > 2.5, "the limit has passed")  # type: ignore[func-returns-value]
    guardian.lease_renewed(began)
    assert not guarded.dies_within(0.5)
    assert not guarded_run.was_killed()


def test_guardian_is_expired_before_first_renewal_and_after_last(stack: ExitStack) -> None:
    guardian = Guardian(FOREVER)
    stack.callback(guardian.close)
    early, _ = admitted(stack, guardian)
    assert early.dies_within(DEADLINE)
    guardian.lease_renewed(boottime())
    living, _ = admitted(stack, guardian)
    assert not living.dies_within(0.5), "a new renewal ends the expiry"


def test_sandbox_admitted_while_expired_is_killed_first(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER, sent_at=boottime() - FOREVER - 1)
    guarded, guarded_run = Guarded(stack), stack.enter_context(guardian.guard_run())
    guarded_run.admit(guarded.pidfd)
    assert guarded_run.was_killed(), "the signal was sent before the response"


def test_guardian_forgets_ended_sandboxes(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    descriptors = Path(f"/proc/{guardian.pid}/fd")
    before, ours = len(list(descriptors.iterdir())), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        guarded = Guarded(stack)
        with guardian.guard_run() as guarded_run:
            guarded_run.admit(guarded.pidfd)
            guarded.end()
            assert not guarded_run.was_killed(), "another process killed it"
    wait_for(lambda: len(list(descriptors.iterdir())) == before, "it closes its descriptors", seconds=DEADLINE)
    # Fewer, if garbage of an earlier test is collected meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= ours + 20, "the test's own"


def test_replacement_guardian_guards_the_same_sandboxes(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    previous = guardian.pid
    guarded, _ = admitted(stack, guardian)
    os.kill(previous, signal.SIGKILL)
    wait_for(lambda: guardian.replace_if_dead() or guardian.pid != previous, "it is replaced", seconds=DEADLINE)  # type: ignore[func-returns-value]
    assert not guarded.dies_within(0.5)
    guardian.close()
    assert guarded.dies_within(DEADLINE), "the new guardian has it"


def test_dead_guardian_is_replaced_on_next_use(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    previous, _ = admitted(stack, guardian)
    os.kill(guardian.pid, signal.SIGKILL)
    latter, _ = admitted(stack, guardian)
    assert not previous.dies_within(0.5)
    guardian.close()
    assert previous.dies_within(DEADLINE)
    assert latter.dies_within(DEADLINE)


def test_hanging_guardian_is_replaced_without_killing_sandboxes(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.lease.guardian.ANSWER_TIMEOUT_SECONDS", 1.0)
    guardian = trusted(stack, FOREVER)
    hung = guardian.pid
    guarded, _ = admitted(stack, guardian)
    os.kill(hung, signal.SIGSTOP)
    guardian.lease_renewed(boottime())
    assert guardian.pid != hung
    assert not guarded.dies_within(0.5)


def test_failed_handover_is_repeated(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    guardian = trusted(stack, FOREVER)
    guarded, _ = admitted(stack, guardian)
    exchange = guardian_module._send_request

    def deaf(sidecar: Sidecar, packet: bytes, descriptor: int | None = None) -> bool:
        if packet.startswith(GUARD):
            raise OSError("it does not answer")
        return exchange(sidecar, packet, descriptor)

    os.kill(guardian.pid, signal.SIGKILL)
    with monkeypatch.context() as patched:
        patched.setattr(guardian_module, "_send_request", deaf)
        with pytest.raises(GuardianUnavailable):
            guardian.lease_renewed(boottime())
    guardian.replace_if_dead()
    guardian.close()
    assert guarded.dies_within(DEADLINE), "the new guardian has it"


def test_kills_of_dead_guardian_are_remembered(stack: ExitStack) -> None:
    guardian = trusted(stack, SOON)
    guarded, guarded_run = admitted(stack, guardian)
    assert guarded.dies_within(DEADLINE)
    os.kill(guardian.pid, signal.SIGKILL)
    assert guarded_run.was_killed()


def test_no_program_starts_without_guardian(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    guardian = trusted(stack, FOREVER)
    guarded = Guarded(stack)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    os.kill(guardian.pid, signal.SIGKILL)
    with guardian.guard_run() as guarded_run, pytest.raises(GuardianUnavailable):
        guarded_run.admit(guarded.pidfd)
    with pytest.raises(GuardianUnavailable):
        guardian.replace_if_dead()
    monkeypatch.undo()
    guardian.replace_if_dead()
    admitted(stack, guardian)


def test_closed_guardian_admits_nothing(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    guardian.close()
    guarded = Guarded(stack)
    with guardian.guard_run() as guarded_run, pytest.raises(GuardianUnavailable):
        guarded_run.admit(guarded.pidfd)
    guardian.replace_if_dead()
    assert not Path(f"/proc/{guardian.pid}").exists()


def test_service_signals_do_not_stop_the_guardian(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    assert os.getsid(guardian.pid) == guardian.pid, "it is in another session, which Ctrl-C does not reach"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian.pid, number)
    previous = guardian.pid
    admitted(stack, guardian)
    assert guardian.pid == previous


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_guardian_kills_everything_when_the_worker_exits(end: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        guarded, guardian = (os.pidfd_open(int(pid)) for pid in worker.stdout.readline().split())
        worker.send_signal(end)
    for descriptor in (guarded, guardian):
        assert select.select([descriptor], [], [], DEADLINE)[0]
        os.close(descriptor)


def test_frozen_worker_loses_its_runs(stack: ExitStack) -> None:
    worker = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", WORKER.replace("600", "2")], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    )
    stack.callback(worker.kill)
    assert worker.stdout is not None
    guarded = os.pidfd_open(int(worker.stdout.readline().split()[0]))
    stack.callback(os.close, guarded)
    worker.send_signal(signal.SIGSTOP)
    assert select.select([guarded], [], [], DEADLINE)[0]


def test_ended_sandbox_is_reported_once(stack: ExitStack) -> None:
    guarded, watch = Guarded(stack), GuardedSandboxes(limit_seconds=FOREVER)
    stack.callback(watch.poll.close)
    assert watch.guard(1, [os.dup(guarded.pidfd)])
    guarded.end()
    assert watch.wait()
    assert watch.poll.poll(0) == [], "otherwise epoll reports it until the worker closes it"
