"""Reading the output of a run that ends while its reader is starved."""

import select
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from tests.support.driving import Recorder, limits, shell
from tests.support.waiting import wait_for
from workers.sandbox import run as run_module
from workers.sandbox.host import Host
from workers.sandbox.run import Run
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import ExitReason, Stream


@pytest.fixture
def sandbox(host: Host) -> Iterator[Sandbox]:
    opened = Sandbox(host)
    yield opened
    opened.close()


def late_poll(before_return: Callable[[], object]) -> Callable[[], object]:
    """A `select.poll` whose first, empty result is outdated: the run ends right after it."""

    class LatePoll:
        def __init__(self) -> None:
            self._poll = select.poll()
            self.register, self.unregister = self._poll.register, self._poll.unregister
            self._late = True

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            if not self._late:
                return self._poll.poll(milliseconds)
            self._late = False
            before_return()
            return []

    return LatePoll


def test_run_that_ends_while_its_reader_is_starved_keeps_its_output(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, started = Recorder(), list[Run]()

    def until_watcher_ends() -> None:
        wait_for(lambda: not started[0]._watcher.is_alive(), "the watcher saw the end of the run")

    fake = SimpleNamespace(poll=late_poll(until_watcher_ends), POLLIN=select.POLLIN)
    monkeypatch.setattr(run_module, "select", fake)
    with sandbox.start(shell("echo last words"), limits()) as run:
        started.append(run)
        outcome = run.stream(record)
    assert (outcome.reason, outcome.exit_code) == (ExitReason.EXIT, 0)
    assert record.streams[Stream.STDOUT] == b"last words\n"
