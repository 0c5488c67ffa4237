"""Recurrences: the nominal instants of a schedule, as values without clock or database.

Entry points: `parse_recurrence`, `values.Recurrence.next_after`, `decide_catch_up`, `preview_instants`.
"""

from jobs.domain.recurrence.bounds import (
    EARLIEST,
    LATEST,
    MAX_EVERY,
    MAX_EXCLUDED_DATES,
    MAX_EXPRESSION_LENGTH,
    MIN_EVERY,
)
from jobs.domain.recurrence.catch_up import CatchUp, CatchUpDecision, add_jitter, decide_catch_up, find_drop_cutoff
from jobs.domain.recurrence.description import describe_recurrence
from jobs.domain.recurrence.hashed import is_hashed, resolve_hashed
from jobs.domain.recurrence.linting import lint_recurrence
from jobs.domain.recurrence.parsing import parse_recurrence
from jobs.domain.recurrence.previewing import PreviewedInstant, preview_instants
from jobs.domain.recurrence.ranges import (
    count_instants,
    find_due_instants,
    find_last_instant,
    find_nth_instant,
    instants_between,
)
from jobs.domain.recurrence.solar import SolarEvent
from jobs.domain.recurrence.values import Kind, Recurrence, next_delay_instant

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_EVERY",
    "MAX_EXCLUDED_DATES",
    "MAX_EXPRESSION_LENGTH",
    "MIN_EVERY",
    "CatchUp",
    "CatchUpDecision",
    "Kind",
    "PreviewedInstant",
    "Recurrence",
    "SolarEvent",
    "add_jitter",
    "count_instants",
    "decide_catch_up",
    "describe_recurrence",
    "find_drop_cutoff",
    "find_due_instants",
    "find_last_instant",
    "find_nth_instant",
    "instants_between",
    "is_hashed",
    "lint_recurrence",
    "next_delay_instant",
    "parse_recurrence",
    "preview_instants",
    "resolve_hashed",
]
