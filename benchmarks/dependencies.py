"""How long a graph of thousands of jobs takes to resolve, and in how many statements, beside bare SQL in the same run.

`.venv/bin/python -m benchmarks.dependencies [--jobs 10000] [--width 100]`
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from uuid import UUID

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine

# Whether anything depends on it, who waits, their locks, the verdict, unblocking, skipping; and creating them before.
MOST_STATEMENTS_A_LEVEL = 15
# Of at most a thousand dependents: which they are, creating or deciding them, where to go on.
MOST_STATEMENTS_A_PAGE = 20
# What any correct program must at least do, knowing everything beforehand: store what waits, then end or free it.
FLOOR_INSERT = """
INSERT INTO jobs_execution (id, job_id, version_id, queue_id, trigger, run_id, scheduled_for, state, attempt,
    tries_used, times_lost, rank, fired_at)
SELECT uuidv7(), j.id, j.current_version_id, v.queue_id, 'dependency', %(run)s, now(), 'blocked', 0, 0, 0, now(), now()
  FROM jobs_job j JOIN jobs_jobversion v ON v.id = j.current_version_id WHERE j.id = ANY(%(jobs)s::uuid[])
"""
FLOOR_SKIP = """
UPDATE jobs_execution SET state = 'skipped', reason = 'dependency', ended_at = now()
 WHERE run_id = %(run)s AND job_id = ANY(%(jobs)s::uuid[]) AND state = 'blocked'
"""
FLOOR_FREE = """
UPDATE jobs_execution SET state = 'ready', ready_at = now(), rank = now()
 WHERE run_id = %(run)s AND job_id = ANY(%(jobs)s::uuid[]) AND state = 'blocked'
"""
EDGES = """
INSERT INTO jobs_dependency (id, job_id, upstream_id, condition)
SELECT uuidv7(), e.job_id, e.upstream_id, 'success' FROM unnest(%s::uuid[], %s::uuid[]) AS e (job_id, upstream_id)
"""


@dataclass
class Counted:
    statements: int = 0
    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=100)
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "dependencies", "jobs": options.jobs, **machine()}
    with laboratory():
        say(f"{options.jobs} jobs in layers of {options.width}")
        root, *others = _make_jobs(options.jobs)
        layers = [others[at : at + options.width] for at in range(0, len(others), options.width)]
        _join_layers([[root], *layers])
        wide, *followers = _make_jobs(options.jobs)
        _store_edges([(job, wide) for job in followers])
        say("a failure at the root skips every layer")
        skipped = _measured(lambda: _end(_start(root), "failed"))
        skipping_floor = _floor(root, layers, FLOOR_SKIP)
        say("a success frees all followers of one job")
        freed = _measured(lambda: _end(_start(wide), "succeeded"))
        freeing_floor = _floor(wide, [followers], FLOOR_FREE)
    result |= {
        "layers": len(layers),
        "skip_all_s": round(skipped.seconds, 3),
        "skip_all_floor_s": round(skipping_floor.seconds, 3),
        "skip_all_statements": skipped.statements,
        "free_all_s": round(freed.seconds, 3),
        "free_all_floor_s": round(freeing_floor.seconds, 3),
        "free_all_statements": freed.statements,
    }
    return conclude(
        result,
        {
            "statements_a_layer": Target(skipped.statements / len(layers), at_most=MOST_STATEMENTS_A_LEVEL),
            "statements_for_one_wide_layer": Target(
                freed.statements, at_most=(2 * options.jobs // 1000 + 2) * MOST_STATEMENTS_A_PAGE
            ),
            "skip_times_floor": Target(skipped.seconds / skipping_floor.seconds, at_most=6),
            "free_times_floor": Target(freed.seconds / freeing_floor.seconds, at_most=6),
        },
    )


def _make_jobs(count: int) -> list[UUID]:
    from django.contrib.auth.models import User
    from django.db import connection, transaction

    from benchmarks.population import FRESH, JOBS, VERSIONS, ZONES, Needs
    from jobs.models import Artifact

    owner, _ = User.objects.get_or_create(username="benchmark")
    artifact, _ = Artifact.objects.get_or_create(owner=owner, sha256="0" * 64, defaults={"size": 1})
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FRESH, {"first": 1, "last": count, "zones": ZONES})
        cursor.execute(JOBS, {"owner": owner.pk})
        cursor.execute(VERSIONS, {"artifact": artifact.pk, **asdict(Needs())})
        cursor.execute("SELECT job_id FROM fresh ORDER BY n")
        return [job_id for (job_id,) in cursor.fetchall()]


def _join_layers(layers: Sequence[Sequence[UUID]]) -> None:
    """Each job waits for three of the layer before, or for as many as that has."""
    edges = []
    for above, layer in pairwise(layers):
        for number, job in enumerate(layer):
            edges += [(job, upstream) for upstream in {above[(number + step) % len(above)] for step in (0, 1, 7)}]
    _store_edges(edges)


def _store_edges(edges: Sequence[tuple[UUID, UUID]]) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(EDGES, [[job for job, _ in edges], [upstream for _, upstream in edges]])
        cursor.execute("ANALYZE jobs_job, jobs_jobversion, jobs_dependency")


def _start(job_id: UUID) -> UUID:
    from jobs.execution.transitions import NewExecution, create_executions
    from jobs.models import Trigger

    (execution_id,) = create_executions([NewExecution(job_id, Trigger.MANUAL)])
    return execution_id


def _end(execution_id: UUID, state: str) -> None:
    """The end itself by bare SQL, what follows from it by the real code: with the end, then by pages, as beat does."""
    from django.db import connection, transaction

    from jobs.domain.worker_protocol import MovedExecution
    from jobs.execution.completion import on_finished
    from jobs.execution.fan_outs import resolve_fan_outs

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_execution SET state = %s, ended_at = now() WHERE id = %s RETURNING id, job_id, run_id, state",
            [state, execution_id],
        )
        on_finished([MovedExecution(*row) for row in cursor.fetchall()])
    while resolve_fan_outs().more:
        pass


def _floor(root: UUID, layers: Sequence[Sequence[UUID]], move: str) -> Counted:
    from django.db import connection, transaction

    run = _start(root)

    def resolve() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(FLOOR_INSERT, {"run": run, "jobs": [job for layer in layers for job in layer]})
            for layer in layers:
                cursor.execute(move, {"run": run, "jobs": list(layer)})

    return _measured(resolve)


def _measured(act: Callable[[], object]) -> Counted:
    with _counting() as counted:
        started = time.perf_counter()
        act()
        counted.seconds = time.perf_counter() - started
    return counted


@contextmanager
def _counting() -> Iterator[Counted]:
    from django.db import connection

    counted = Counted()

    def count(execute: Callable[..., object], *arguments: object) -> object:
        counted.statements += 1
        return execute(*arguments)

    with connection.execute_wrapper(count):
        yield counted


if __name__ == "__main__":
    sys.exit(main())
