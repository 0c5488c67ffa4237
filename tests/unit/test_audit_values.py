"""What is kept of a change: what differs, bounded, storable, and nothing that was to stay hidden."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

from jobs.models import Overlap
from jobs.services.audit_values import difference, fitting, hidden, plain


@dataclass(frozen=True)
class Needs:
    cpu: float
    names: tuple[str, ...] = ()


def test_only_what_differs_is_kept_by_its_path() -> None:
    before = plain({"name": "a", "requirements": Needs(1, ("x",)), "gone": 1, "same": [1, 2]})
    after = plain({"name": "a", "requirements": Needs(2, ("x",)), "new": None, "same": [1, 2]})
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
    strange = {
        "nul": "a\0b",
        "surrogate": "\ud800",
        "nan": float("nan"),
        "infinite": float("-inf"),
        "moment": datetime(2030, 1, 1, tzinfo=UTC),
        "day": date(2030, 1, 2),
        "id": UUID(int=7),
        "choice": Overlap.SKIP,
        "set": {3},
        "none": None,
        "na\0me": b"\xff",
    }
    shown = plain(strange)
    text = json.dumps(shown, allow_nan=False, ensure_ascii=False).encode()
    assert b"\\u0000" not in text
    assert shown["moment"] == "2030-01-01T00:00:00Z"
    assert (shown["day"], shown["choice"], shown["set"], shown["none"]) == ("2030-01-02", "skip", [3], None)
    assert shown["id"] == str(UUID(int=7))


def test_what_is_nested_without_end_ends() -> None:
    endless: list[object] = []
    endless.append(endless)
    json.dumps(plain({"endless": endless}))


def test_what_is_too_large_is_cut_and_says_so() -> None:
    kept = fitting({"small": 1, "large": "x" * 3000, "larger": "y" * 9000}, 4000)
    assert kept["small"] == 1
    assert kept["large"] == "x" * 3000
    assert str(kept["larger"]).startswith("(cut: 90")
    many = {f"field {number}": "x" for number in range(5000)}
    assert len(json.dumps(fitting(many, 4000))) < 4000
