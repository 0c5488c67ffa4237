"""Evaluation of the self-test's probes."""

from pathlib import Path

from workers.sandbox.self_test.runner import HELD, MAX_FINDING_CHARACTERS, PROBES, evaluate_probes, parse_probe_output


def test_sandbox_that_holds_everything_is_trustworthy() -> None:
    result = evaluate_probes(dict.fromkeys(PROBES, HELD))
    assert result.trustworthy
    assert result.held == tuple(PROBES)
    assert result.problem == ""


def test_failed_probe_is_a_problem() -> None:
    result = evaluate_probes(dict.fromkeys(PROBES, HELD) | {"network": "it reached the worker"})
    assert not result.trustworthy
    assert "network" not in result.held
    assert result.problem == "The sandbox of this host does not hold: network (it reached the worker)."


def test_missing_probe_counts_as_not_tried() -> None:
    result = evaluate_probes({name: HELD for name in PROBES if name != "tracing"})
    assert result.not_tried == ("tracing",)
    assert result.problem == ""
    assert not result.trustworthy
    assert evaluate_probes({}).not_tried == tuple(PROBES)


def test_sampled_memory_is_not_trustworthy() -> None:
    result = evaluate_probes(dict.fromkeys(PROBES, HELD), memory_is_metered=False)
    assert not result.trustworthy
    assert result.problem == ""
    assert result.limitation == "Without cgroups, memory is only sampled ten times a second."


def test_long_finding_is_truncated() -> None:
    assert evaluate_probes({"writing": "x" * 1000}).failed == {"writing": "x" * MAX_FINDING_CHARACTERS}


def test_probe_output_is_parsed_by_name() -> None:
    lines = ["disk held", "network it reached the worker by 127.0.0.1 ", "", "unknown held", "memory", "  writing held"]
    answers = {"disk": "held", "network": "it reached the worker by 127.0.0.1", "memory": "", "writing": "held"}
    assert parse_probe_output(lines) == answers
    assert evaluate_probes(answers).failed == {"network": answers["network"], "memory": ""}


def test_every_probe_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs/sandbox.md").read_text()
    for name, holds in PROBES.items():
        assert f"| `{name}` | {holds} |" in text
