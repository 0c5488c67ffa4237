"""Which ready execution goes where, and what keeps the others: a pure function of what waits and what is free."""

from __future__ import annotations

from jobs.planning.passing import OWNER_FULL, plan
from jobs.planning.values import MAX_AMOUNT, Demand, Gate, Plan, Planned, Supply, is_resource_name, parse_amounts

__all__ = [
    "MAX_AMOUNT",
    "OWNER_FULL",
    "Demand",
    "Gate",
    "Plan",
    "Planned",
    "Supply",
    "is_resource_name",
    "parse_amounts",
    "plan",
]
