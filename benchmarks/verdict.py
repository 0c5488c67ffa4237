"""A benchmark's last word: one JSON line with its targets, and an exit code that says whether they were met."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Target:
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def shown(self) -> dict[str, object]:
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {
            "value": round(self.value, 3),
            **{name: bound for name, bound in bounds.items() if bound is not None},
            "met": self.met,
        }


def machine() -> dict[str, object]:
    """What a reader needs to judge absolute numbers; the load is that of others, before the benchmark's own."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def conclude(result: Mapping[str, object], targets: Mapping[str, Target]) -> int:
    ok = all(target.met for target in targets.values())
    print(json.dumps({**result, "targets": {name: target.shown() for name, target in targets.items()}, "ok": ok}))
    return 0 if ok else 1


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
