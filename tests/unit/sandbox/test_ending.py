"""How the end of a run is told from the evidence."""

import pytest

from workers.sandbox.ending import End, classify_end, exit_code_in
from workers.sandbox.values import EndReason

KILL = 9


def _end(
    verdict: EndReason | None = None, code: int | None = 0, *, oom: bool = False, not_executed: bool = False
) -> End:
    return classify_end(verdict=verdict, exit_code=code, out_of_memory=oom, not_executed=not_executed)


@pytest.mark.parametrize("code", [0, 1, 127, 128, 193, 255])
def test_an_exit_code_is_an_exit(code: int) -> None:
    assert _end(code=code) == End(EndReason.EXIT, exit_code=code)


@pytest.mark.parametrize("number", [1, 9, 11, 15, 64])
def test_codes_above_128_are_signals(number: int) -> None:
    assert _end(code=128 + number) == End(EndReason.SIGNAL, signal=number)


@pytest.mark.parametrize("verdict", [EndReason.TIMEOUT, EndReason.KILLED, EndReason.OUT_OF_MEMORY])
@pytest.mark.parametrize("code", [None, 137])
def test_a_verdict_counts_when_its_signal_ended_the_run(verdict: EndReason, code: int | None) -> None:
    assert _end(verdict, code) == End(verdict, signal=KILL)


def test_a_program_that_returned_just_before_the_kill_did_return() -> None:
    assert _end(EndReason.TIMEOUT, 0) == End(EndReason.EXIT, exit_code=0)
    assert _end(EndReason.KILLED, 5) == End(EndReason.EXIT, exit_code=5)


def test_the_kernels_word_on_memory_beats_the_exit_code_but_no_other_verdict() -> None:
    assert _end(code=0, oom=True).reason is EndReason.OUT_OF_MEMORY
    assert _end(code=137, oom=True).reason is EndReason.OUT_OF_MEMORY
    assert _end(EndReason.OUT_OF_MEMORY, 1, oom=True).reason is EndReason.OUT_OF_MEMORY
    assert _end(EndReason.KILLED, 137, oom=True).reason is EndReason.KILLED


def test_no_exit_code_is_a_failed_exec_or_a_kill_from_outside() -> None:
    assert _end(code=None, not_executed=True) == End(EndReason.EXIT, exit_code=127)
    assert _end(code=None) == End(EndReason.SIGNAL, signal=KILL)


def test_the_exit_code_is_found_in_bubblewraps_status() -> None:
    assert exit_code_in(b'{ "child-pid": 7 }\n{ "exit-code": 3 }\n') == 3
    assert exit_code_in(b'{ "child-pid": 7 }\n') is None
    assert exit_code_in(b'nonsense\n[]\n{ "exit-code": "x" }\n') is None
    assert exit_code_in(b"") is None
