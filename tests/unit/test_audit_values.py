"""What is kept of a change: what differs, bounded, storable, and nothing that was to stay hidden."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

from jobs.models import Overlap
from jobs.services.audit_values import difference, encoded, hidden


@dataclass(frozen=True)
class Needs:
    cpu: float
    names: tuple[str, ...] = ()


def test_only_what_differs_is_kept_by_its_path() -> None:
    before = {"name": "a", "requirements": Needs(1, ("x",)), "gone": 1, "same": [1, 2]}
    after = {"name": "a", "requirements": Needs(2, ("x",)), "new": None, "same": [1, 2]}
    assert difference(before, after) == ({"requirements.cpu": 1, "gone": 1}, {"requirements.cpu": 2, "new": None})


def test_what_becomes_empty_differs() -> None:
    assert difference({"env": {"A": "x"}}, {"env": {}}) == ({"env.A": "x"}, {"env": {}})


def test_values_of_variables_are_told_by_words() -> None:
    before, after = hidden(
        {"KEPT": "s3cret", "CHANGED": "s3cret", "GONE": "s3cret"}, {"KEPT": "s3cret", "CHANGED": "n"}
    )
    assert difference({"env": before}, {"env": after}) == (
        {"env.CHANGED": "(hidden)", "env.GONE": "(hidden)"},
        {"env.CHANGED": "(hidden, changed)"},
    )


def test_anything_becomes_json_that_postgres_takes() -> None:
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
    shown = json.loads(encoded(ordinary, 4000))
    assert shown == {
        "moment": "2030-01-01T00:00:00Z", "day": "2030-01-02", "id": str(UUID(int=7)), "choice": "skip", "set": [3],
        "none": None, "needs": [{"cpu": 1, "names": []}], "letters": "äöü \\u0000",
    }  # fmt: skip
    text = encoded(ordinary | strange | {"infinite": float("-inf")}, 4000)
    assert text.isprintable()
    text.encode()
    again = json.loads(text)
    assert {name: again[name] for name in shown} == shown, "the same, beside what is strange"
    assert (again["nul"], again["surrogate"], again["face"]) == ("ab", "?", "\U0001f600")
    assert (again["nan"], again["infinite"]) == ("nan", "-inf")


def test_what_is_nested_without_end_ends() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert "[...]" in encoded({"endless": endless}, 4000)


def test_what_is_too_large_is_cut_and_says_so() -> None:
    kept = json.loads(encoded({"small": 1, "large": "x" * 3000, "larger": ["y" * 1000] * 9}, 4000))
    assert kept["small"] == 1
    assert kept["large"] == "x" * 3000
    assert kept["larger"].startswith("(cut: 90")
    many = {f"field {number}": "x" for number in range(5000)}
    assert json.loads(encoded(many, 4000)) == {"fields": "(cut: 5000 fields)"}
