"""What the answers of the probes come to."""

from pathlib import Path

from workers.sandbox.self_test import HELD, MAX_SEEN, PROBES, judge, read_answers


def test_trustworthy() -> None:
    result = judge(dict.fromkeys(PROBES, HELD))
    assert result.trustworthy
    assert result.held == tuple(PROBES)
    assert result.problem == ""


def test_one_failed() -> None:
    result = judge(dict.fromkeys(PROBES, HELD) | {"network": "it reached the worker"})
    assert not result.trustworthy
    assert "network" not in result.held
    assert result.problem == "The sandbox of this host does not hold: network (it reached the worker)."


def test_what_did_not_answer_was_not_tried() -> None:
    result = judge({name: HELD for name in PROBES if name != "tracing"})
    assert result.untried == ("tracing",)
    assert result.problem == ""
    assert not result.trustworthy
    assert judge({}).untried == tuple(PROBES)


def test_memory_that_is_only_looked_at_is_no_reason_to_trust() -> None:
    result = judge(dict.fromkeys(PROBES, HELD), memory_is_metered=False)
    assert not result.trustworthy
    assert result.problem == ""
    assert result.shortcoming == "Without cgroups, memory is only looked at ten times a second."


def test_what_a_probe_saw_is_cut_short() -> None:
    assert judge({"writing": "x" * 1000}).failed == {"writing": "x" * MAX_SEEN}


def test_answers_are_read_by_name() -> None:
    lines = ["disk held", "network it reached the worker by 127.0.0.1 ", "", "unknown held", "memory", "  writing held"]
    answers = {"disk": "held", "network": "it reached the worker by 127.0.0.1", "memory": "", "writing": "held"}
    assert read_answers(lines) == answers
    assert judge(answers).failed == {"network": answers["network"], "memory": ""}


def test_every_probe_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/sandbox.md").read_text()
    for name, holds in PROBES.items():
        assert f"| `{name}` | {holds} |" in text
