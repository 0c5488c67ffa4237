"""Counters and current metrics of the installation, for /metrics.

Counters live in Postgres, so that every process can add to them and none takes its share along when it exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Count

from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain.states import UNFINISHED_STATES
from jobs.models import Counter, Execution, Worker, WorkerStatus
from jobs.scheduling.firing import read_next_due


@dataclass(frozen=True, slots=True)
class CurrentMetrics:
    counters: Mapping[str, int]
    executions: Mapping[str, int]  # unfinished ones by state
    workers: Mapping[str, int]  # by status
    overdue_seconds: float  # how long the oldest due schedule has been waiting to fire


def increment_counters(amounts: Mapping[str, int]) -> None:
    added = {name: amount for name, amount in amounts.items() if amount}
    if added:
        with transaction.atomic(), with_timeouts(statement_seconds=5, durable=False):
            sql.execute("increment_counters", {"names": list(added), "amounts": list(added.values())})


def read_metrics() -> CurrentMetrics:
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        unfinished = Execution.objects.filter(ended_at__isnull=True)
        states = unfinished.values_list("state").annotate(Count("id")).order_by()
        present = Worker.objects.exclude(status=WorkerStatus.RETIRED)
        statuses = present.values_list("status").annotate(Count("id")).order_by()
        executions: dict[str, int] = dict.fromkeys(UNFINISHED_STATES, 0)
        executions.update(states)
        return CurrentMetrics(
            counters=dict(Counter.objects.values_list("name", "value")),
            executions=executions,
            workers=dict(statuses),
            overdue_seconds=max(0.0, -(read_next_due().seconds or 0.0)),
        )
