"""Snapshots of changes: only differences, bounded, storable and without hidden values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

from jobs.audit.snapshots import diff_snapshots, encode_snapshot, hide_values
from jobs.domain.choices import Overlap


@dataclass(frozen=True)
class Needs:
    cpu: float
    names: tuple[str, ...] = ()


def test_diff_keeps_only_changed_paths() -> None:
    before = {"name": "a", "requirements": Needs(1, ("x",)), "gone": 1, "same": [1, 2]}
    after = {"name": "a", "requirements": Needs(2, ("x",)), "new": None, "same": [1, 2]}
    assert diff_snapshots(before, after) == ({"requirements.cpu": 1, "gone": 1}, {"requirements.cpu": 2, "new": None})


def test_value_that_becomes_empty_differs() -> None:
    assert diff_snapshots({"env": {"A": "x"}}, {"env": {}}) == ({"env.A": "x"}, {"env": {}})


def test_values_of_variables_are_hidden() -> None:
    before, after = hide_values(
        {"KEPT": "s3cret", "CHANGED": "s3cret", "GONE": "s3cret"}, {"KEPT": "s3cret", "CHANGED": "n"}
    )
    assert diff_snapshots({"env": before}, {"env": after}) == (
        {"env.CHANGED": "(hidden)", "env.GONE": "(hidden)"},
        {"env.CHANGED": "(hidden, changed)"},
    )


def test_any_value_becomes_json_that_postgres_accepts() -> None:
    ordinary = {
        "moment": datetime(2030, 1, 1, tzinfo=UTC),
        "day": date(2030, 1, 2),
        "id": UUID(int=7),
        "choice": Overlap.SKIP,
        "set": {3},
        "none": None,
        "needs": [Needs(1)],
        "letters": "äöü \\u0000",
    }
    strange = {"nul": "a\0b", "surrogate": "\ud800", "face": "\U0001f600", "nan": float("nan"), "na\0me": b"\xff"}
    plain = json.loads(encode_snapshot(ordinary, 4000))
    assert plain == {
        "moment": "2030-01-01T00:00:00Z", "day": "2030-01-02", "id": str(UUID(int=7)), "choice": "skip", "set": [3],
        "none": None, "needs": [{"cpu": 1, "names": []}], "letters": "äöü \\u0000",
    }  # fmt: skip
    text = encode_snapshot(ordinary | strange | {"infinite": float("-inf")}, 4000)
    assert text.isprintable()
    text.encode()
    again = json.loads(text)
    assert {name: again[name] for name in plain} == plain, "ordinary values are unchanged"
    assert (again["nul"], again["surrogate"], again["face"]) == ("ab", "?", "\U0001f600")
    assert (again["nan"], again["infinite"]) == ("nan", "-inf")


def test_deep_nesting_is_truncated() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert "[...]" in encode_snapshot({"endless": endless}, 4000)


def test_large_values_are_replaced_by_a_note() -> None:
    truncated = json.loads(encode_snapshot({"small": 1, "large": "x" * 3000, "larger": ["y" * 1000] * 9}, 4000))
    assert truncated["small"] == 1
    assert truncated["large"] == "x" * 3000
    assert truncated["larger"].startswith("(cut: 90")
    many = {f"field {number}": "x" for number in range(5000)}
    assert json.loads(encode_snapshot(many, 4000)) == {"fields": "(cut: 5000 fields)"}
