"""Classification of a run's exit."""

import pytest

from workers.sandbox.exit_status import ExitStatus, classify_exit, parse_exit_code
from workers.sandbox.values import ExitReason

KILL = 9


def _end(
    kill_reason: ExitReason | None = None, code: int | None = 0, *, oom: bool = False, not_executed: bool = False
) -> ExitStatus:
    return classify_exit(kill_reason=kill_reason, exit_code=code, out_of_memory=oom, not_executed=not_executed)


@pytest.mark.parametrize("code", [0, 1, 127, 128, 193, 255])
def test_plain_exit_code_is_an_exit(code: int) -> None:
    assert _end(code=code) == ExitStatus(ExitReason.EXIT, exit_code=code)


@pytest.mark.parametrize("number", [1, 9, 11, 15, 64])
def test_exit_codes_above_128_are_signals(number: int) -> None:
    assert _end(code=128 + number) == ExitStatus(ExitReason.SIGNAL, signal=number)


@pytest.mark.parametrize("kill_reason", [ExitReason.TIMEOUT, ExitReason.KILLED, ExitReason.OUT_OF_MEMORY])
@pytest.mark.parametrize("code", [None, 137])
def test_kill_reason_counts_if_its_signal_ended_the_run(kill_reason: ExitReason, code: int | None) -> None:
    assert _end(kill_reason, code) == ExitStatus(kill_reason, signal=KILL)


def test_exit_just_before_the_kill_counts_as_exit() -> None:
    assert _end(ExitReason.TIMEOUT, 0) == ExitStatus(ExitReason.EXIT, exit_code=0)
    assert _end(ExitReason.KILLED, 5) == ExitStatus(ExitReason.EXIT, exit_code=5)


def test_kernel_oom_kill_overrides_exit_code_but_no_other_kill_reason() -> None:
    assert _end(code=0, oom=True).reason is ExitReason.OUT_OF_MEMORY
    assert _end(code=137, oom=True).reason is ExitReason.OUT_OF_MEMORY
    assert _end(ExitReason.OUT_OF_MEMORY, 1, oom=True).reason is ExitReason.OUT_OF_MEMORY
    assert _end(ExitReason.KILLED, 137, oom=True).reason is ExitReason.KILLED


def test_missing_exit_code_is_failed_exec_or_external_kill() -> None:
    assert _end(code=None, not_executed=True) == ExitStatus(ExitReason.EXIT, exit_code=127)
    assert _end(code=None) == ExitStatus(ExitReason.SIGNAL, signal=KILL)


def test_exit_code_is_parsed_from_bubblewraps_status() -> None:
    assert parse_exit_code(b'{ "child-pid": 7 }\n{ "exit-code": 3 }\n') == 3
    assert parse_exit_code(b'{ "child-pid": 7 }\n') is None
    assert parse_exit_code(b'nonsense\n[]\n{ "exit-code": "x" }\n') is None
    assert parse_exit_code(b"") is None
