"""What the installation counts, and how it stands now: the numbers behind /metrics.

Counted in Postgres, where every process reaches them and none takes its share along when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Count

from jobs import sql
from jobs.models import Counter, Execution, Worker
from jobs.services.database import bounded
from jobs.services.firing import seconds_until_next_due
from jobs.states import TERMINAL, State


@dataclass(frozen=True, slots=True)
class Standing:
    counters: Mapping[str, int]
    executions: Mapping[str, int]  # by state, of those that have not ended
    workers: Mapping[str, int]  # by status
    overdue_seconds: float  # for how long something that is due has waited to be fired


def add_counts(amounts: Mapping[str, int]) -> None:
    added = {name: amount for name, amount in amounts.items() if amount}
    if added:
        with transaction.atomic(), bounded(statement_seconds=5, durable=False):
            sql.execute("add_counts", {"names": list(added), "amounts": list(added.values())})


def read_standing() -> Standing:
    unfinished = [state for state in State if state not in TERMINAL]
    with transaction.atomic(), bounded(statement_seconds=5):
        states = Execution.objects.filter(state__in=unfinished).values_list("state").annotate(Count("id")).order_by()
        statuses = Worker.objects.values_list("status").annotate(Count("id")).order_by()
        executions: dict[str, int] = {str(state): 0 for state in unfinished}
        executions.update(states)
        return Standing(
            counters=dict(Counter.objects.values_list("name", "value")),
            executions=executions,
            workers=dict(statuses),
            overdue_seconds=max(0.0, -(seconds_until_next_due() or 0.0)),
        )
