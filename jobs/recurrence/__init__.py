"""When a schedule is due: nominal instants as values, without a clock or a database.

Invariant: a recurrence is one fixed set of instants. `next_after` walks it strictly upwards, so wherever a walk starts,
and however often it stops and resumes, no instant is skipped and none comes twice.
"""

from jobs.recurrence.bounds import (
    EARLIEST,
    LATEST,
    MAX_EVERY,
    MAX_EXCLUDED_DATES,
    MAX_EXPRESSION_LENGTH,
    MIN_EVERY,
)
from jobs.recurrence.hashed import is_hashed, resolve_hashed
from jobs.recurrence.linting import lint
from jobs.recurrence.parsing import parse_recurrence
from jobs.recurrence.previewing import Instant, preview
from jobs.recurrence.settling import CatchUp, Settled, jittered, settle
from jobs.recurrence.solar import SolarEvent
from jobs.recurrence.values import Kind, Recurrence, rearmed
from jobs.recurrence.walking import count_instants, due_instants, instants_between
from jobs.recurrence.wording import describe

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_EVERY",
    "MAX_EXCLUDED_DATES",
    "MAX_EXPRESSION_LENGTH",
    "MIN_EVERY",
    "CatchUp",
    "Instant",
    "Kind",
    "Recurrence",
    "Settled",
    "SolarEvent",
    "count_instants",
    "describe",
    "due_instants",
    "instants_between",
    "is_hashed",
    "jittered",
    "lint",
    "parse_recurrence",
    "preview",
    "rearmed",
    "resolve_hashed",
    "settle",
]
