"""Best-fit placement of ready executions on workers, as a pure function of demands and free capacity.

Entry point: `best_fit.plan_placements`; `values` has its inputs and outputs.
"""

from jobs.domain.packing.best_fit import OWNER_AT_LIMIT, plan_placements
from jobs.domain.packing.values import (
    MAX_AMOUNT,
    Demand,
    Gate,
    Plan,
    PlannedPlacement,
    Supply,
    is_resource_name,
    parse_amounts,
)

__all__ = [
    "MAX_AMOUNT",
    "OWNER_AT_LIMIT",
    "Demand",
    "Gate",
    "Plan",
    "PlannedPlacement",
    "Supply",
    "is_resource_name",
    "parse_amounts",
    "plan_placements",
]
