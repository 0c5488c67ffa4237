"""The guardian ends what it guards when no renewal vouches for it, and when the worker is gone; real processes."""

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

from tests.waiting import wait_for
from workers import guardian as guardian_module
from workers.errors import GuardianUnavailable
from workers.guardian import Guardian, Ward
from workers.guardian_process import GUARD, Watch, now
from workers.sandbox.companion import Companion

ROOT = Path(__file__).resolve().parents[3]
FOREVER = 600.0
SOON = 0.4
DEADLINE = 20.0

WORKER = """
import os, subprocess, sys
from workers.guardian import Guardian
from workers.guardian_process import now
guardian = Guardian(600)
guardian.trust(now())
child = subprocess.Popen(["sleep", "1000"])
with guardian.ward() as ward:
    ward.admit(os.pidfd_open(child.pid))
    print(child.pid, guardian.pid, flush=True)
    sys.stdin.read()
"""


class Guarded:
    """A process in a sandbox's place."""

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
    guardian.trust(now() if sent_at is None else sent_at)
    return guardian


def admitted(stack: ExitStack, guardian: Guardian) -> tuple[Guarded, Ward]:
    guarded, ward = Guarded(stack), stack.enter_context(guardian.ward())
    ward.admit(guarded.pidfd)
    return guarded, ward


def test_what_no_renewal_vouches_for_is_killed_and_known_to_be(stack: ExitStack) -> None:
    guardian = trusted(stack, SOON)
    both = [admitted(stack, guardian) for _ in range(2)]
    for guarded, ward in both:
        assert guarded.dies_within(DEADLINE)
        assert ward.was_killed()
    assert guardian.expired()


def test_the_limit_counts_from_when_the_renewal_was_sent(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER, sent_at=now() - FOREVER - 1)
    guarded, _ = admitted(stack, guardian)
    assert guarded.dies_within(DEADLINE)


def test_renewals_keep_it_alive_and_an_old_one_that_comes_late_takes_nothing_back(stack: ExitStack) -> None:
    guardian = trusted(stack, 2)
    guarded, ward = admitted(stack, guardian)
    began = now()
    wait_for(lambda: guardian.trust(now()) or now() - began > 2.5, "more than the limit has passed")  # type: ignore[func-returns-value]
    guardian.trust(began)
    assert not guarded.dies_within(0.5)
    assert not ward.was_killed()


def test_before_the_first_renewal_and_after_the_last_nothing_new_may_live(stack: ExitStack) -> None:
    guardian = Guardian(FOREVER)
    stack.callback(guardian.close)
    early, _ = admitted(stack, guardian)
    assert early.dies_within(DEADLINE)
    guardian.trust(now())
    living, _ = admitted(stack, guardian)
    assert not living.dies_within(0.5), "a fresh renewal brings trust back"


def test_what_it_takes_while_expired_is_dead_before_it_answers(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER, sent_at=now() - FOREVER - 1)
    guarded, ward = Guarded(stack), stack.enter_context(guardian.ward())
    ward.admit(guarded.pidfd)
    assert ward.was_killed(), "the signal was sent by then"


def test_it_forgets_what_is_over(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    descriptors = Path(f"/proc/{guardian.pid}/fd")
    before, ours = len(list(descriptors.iterdir())), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        guarded = Guarded(stack)
        with guardian.ward() as ward:
            ward.admit(guarded.pidfd)
            guarded.end()
            assert not ward.was_killed(), "by somebody else's hand"
    wait_for(lambda: len(list(descriptors.iterdir())) == before, "its descriptors are closed", seconds=DEADLINE)
    # Fewer, if what an earlier test has left is collected meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= ours + 20, "the test's own"


def test_one_that_died_is_replaced_and_its_successor_guards_what_it_guarded(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    former = guardian.pid
    guarded, _ = admitted(stack, guardian)
    os.kill(former, signal.SIGKILL)
    wait_for(lambda: guardian.look_after() or guardian.pid != former, "it is noticed", seconds=DEADLINE)  # type: ignore[func-returns-value]
    assert not guarded.dies_within(0.5)
    guardian.close()
    assert guarded.dies_within(DEADLINE), "its successor had it"


def test_one_that_died_is_noticed_by_whoever_needs_it_first(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    former, _ = admitted(stack, guardian)
    os.kill(guardian.pid, signal.SIGKILL)
    latter, _ = admitted(stack, guardian)
    assert not former.dies_within(0.5)
    guardian.close()
    assert former.dies_within(DEADLINE)
    assert latter.dies_within(DEADLINE)


def test_one_that_hangs_is_replaced_without_harm_to_what_it_guards(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.guardian.ANSWER_SECONDS", 1.0)
    guardian = trusted(stack, FOREVER)
    hung = guardian.pid
    guarded, _ = admitted(stack, guardian)
    os.kill(hung, signal.SIGSTOP)
    guardian.trust(now())
    assert guardian.pid != hung
    assert not guarded.dies_within(0.5)


def test_a_handover_that_failed_is_begun_again(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    guardian = trusted(stack, FOREVER)
    guarded, _ = admitted(stack, guardian)
    exchange = guardian_module._exchange

    def deaf(companion: Companion, packet: bytes, descriptor: int | None = None) -> bool:
        if packet.startswith(GUARD):
            raise OSError("it does not answer")
        return exchange(companion, packet, descriptor)

    os.kill(guardian.pid, signal.SIGKILL)
    with monkeypatch.context() as patched:
        patched.setattr(guardian_module, "_exchange", deaf)
        with pytest.raises(GuardianUnavailable):
            guardian.trust(now())
    guardian.look_after()
    guardian.close()
    assert guarded.dies_within(DEADLINE), "the next one guarded it"


def test_what_a_guardian_killed_before_it_died_is_known_to_its_successor(stack: ExitStack) -> None:
    guardian = trusted(stack, SOON)
    guarded, ward = admitted(stack, guardian)
    assert guarded.dies_within(DEADLINE)
    os.kill(guardian.pid, signal.SIGKILL)
    assert ward.was_killed()


def test_without_a_guardian_nothing_is_let_go(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    guardian = trusted(stack, FOREVER)
    guarded = Guarded(stack)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    os.kill(guardian.pid, signal.SIGKILL)
    with guardian.ward() as ward, pytest.raises(GuardianUnavailable):
        ward.admit(guarded.pidfd)
    with pytest.raises(GuardianUnavailable):
        guardian.look_after()
    monkeypatch.undo()
    guardian.look_after()
    admitted(stack, guardian)


def test_nothing_is_admitted_once_it_was_closed(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    guardian.close()
    guarded = Guarded(stack)
    with guardian.ward() as ward, pytest.raises(GuardianUnavailable):
        ward.admit(guarded.pidfd)
    guardian.look_after()
    assert not Path(f"/proc/{guardian.pid}").exists()


def test_signals_to_a_whole_service_do_not_end_it(stack: ExitStack) -> None:
    guardian = trusted(stack, FOREVER)
    assert os.getsid(guardian.pid) == guardian.pid, "Ctrl-C does not reach it"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian.pid, number)
    former = guardian.pid
    admitted(stack, guardian)
    assert guardian.pid == former


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_worker_and_takes_everything_along(end: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        guarded, guardian = (os.pidfd_open(int(pid)) for pid in worker.stdout.readline().split())
        worker.send_signal(end)
    for descriptor in (guarded, guardian):
        assert select.select([descriptor], [], [], DEADLINE)[0]
        os.close(descriptor)


def test_a_worker_that_is_frozen_loses_what_it_runs(stack: ExitStack) -> None:
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


def test_a_sandbox_that_is_over_is_heard_of_once_although_the_worker_still_has_it(stack: ExitStack) -> None:
    guarded, watch = Guarded(stack), Watch(limit_seconds=FOREVER)
    stack.callback(watch.poll.close)
    assert watch.guard(1, [os.dup(guarded.pidfd)])
    guarded.end()
    assert watch.wait()
    assert watch.poll.poll(0) == [], "it would be heard of for as long as the worker keeps it"
