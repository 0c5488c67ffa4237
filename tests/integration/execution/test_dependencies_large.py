"""Graphs of ten thousand jobs: each level costs the same few statements, however wide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.definitions.dependency_graph import edit_dependencies
from jobs.domain.choices import Condition
from jobs.domain.errors import InvalidInput
from jobs.domain.job_spec import DependencySpec, JobSpec
from jobs.domain.states import State
from jobs.domain.worker_protocol import MovedExecution
from jobs.execution.dependents import create_fired_executions, resolve_dependents, resolve_just_fired, sweep_blocked
from jobs.execution.fan_outs import resolve_fan_outs
from jobs.execution.transitions import NewExecution
from jobs.models import Execution, Job, JobVersion, Schedule, Trigger
from tests.support.factories import make_execution, make_job
from tests.support.submitting import submit_job

pytestmark = pytest.mark.django_db

# Count dependents, find blocked ones, lock their rows, decide, unblock, skip.
A_LEVEL = 6
# Per page of fan-outs: timeouts, due fan-outs, their dependents, missing executions and so on.
A_PAGE = 20
# The finish itself, missing executions, inserting them, locking the runs.
AT_FIRST = 4
# Everything else of a job.
SUBMITTING = 40


def after(*upstreams: UUID) -> JobSpec:
    return JobSpec(
        name="last",
        runtime="bash",
        script="true",
        dependencies=[DependencySpec(u, Condition.SUCCESS) for u in upstreams],
    )


FRESH = """
CREATE TEMPORARY TABLE fresh ON COMMIT DROP AS
SELECT n, gen_random_uuid() AS job_id, gen_random_uuid() AS version_id FROM generate_series(1, %s) n
"""
JOBS = """
INSERT INTO jobs_job (id, owner_id, name, state, paused_note, current_version_id, created_at, updated_at)
SELECT f.job_id, j.owner_id, 'job ' || f.n, j.state, '', f.version_id, now(), now()
  FROM fresh f, jobs_job j WHERE j.id = %s
"""
VERSIONS = """
INSERT INTO jobs_jobversion (id, job_id, {fields})
SELECT f.version_id, f.job_id, {fields} FROM fresh f, jobs_jobversion v WHERE v.job_id = %s
"""
EDGES = """
INSERT INTO jobs_dependency (id, job_id, upstream_id, condition)
SELECT gen_random_uuid(), e.job_id, e.upstream_id, 'success'
  FROM unnest(%s::uuid[], %s::uuid[]) AS e (job_id, upstream_id)
"""


def make_graph(edges: Sequence[tuple[int, int]], count: int) -> list[UUID]:
    """Insert `count` jobs and the edges (job, upstream) between their numbers."""
    first = make_job()
    fields = ", ".join(f.attname for f in JobVersion._meta.concrete_fields if f.name not in ("id", "job"))
    with connection.cursor() as cursor:
        cursor.execute(FRESH, [count - 1])
        cursor.execute(JOBS, [first.id])
        cursor.execute(VERSIONS.format(fields=fields), [first.id])
        cursor.execute("SELECT job_id FROM fresh ORDER BY n")
        ids = [first.id, *(job_id for (job_id,) in cursor.fetchall())]
        cursor.execute(EDGES, [[ids[job] for job, _ in edges], [ids[upstream] for _, upstream in edges]])
        cursor.execute("ANALYZE jobs_job, jobs_jobversion, jobs_dependency")
    return ids


def layered(width: int, layers: int) -> list[tuple[int, int]]:
    """Edges from job 0 to a first layer; a job of a later layer has three upstreams in the layer before."""
    edges = [(1 + n, 0) for n in range(width)]
    for layer in range(1, layers):
        for n in range(width):
            for upstream in {n, (n + 1) % width, (n + 7) % width}:
                edges.append((1 + layer * width + n, 1 + (layer - 1) * width + upstream))
    return edges


def end(executions: Sequence[Execution], state: State) -> None:
    ids = [e.id for e in executions]
    Execution.objects.filter(id__in=ids).update(state=state, ended_at=datetime.now(UTC))
    resolve_dependents([MovedExecution(e.id, e.job_id, e.run_id, state) for e in executions])


def fan_out() -> int:
    """Resolve all fan-outs; return the number of pages."""
    pages = 0
    while resolve_fan_outs().more:
        pages += 1
    return pages


@contextmanager
def statements_at_most(most: int) -> Iterator[None]:
    with CaptureQueriesContext(connection) as captured:
        yield
    assert len(captured) <= most, Counter(query["sql"][:80] for query in captured.captured_queries).most_common(12)


def states(run: Execution) -> Counter[str]:
    return Counter(Execution.objects.filter(run_id=run.run_id).values_list("state", flat=True))


def test_failure_at_the_root_skips_ten_thousand_at_all_levels() -> None:
    ids = make_graph(layered(101, 99), 10_000)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    with statements_at_most(AT_FIRST + A_LEVEL):
        end([root], State.FAILED)
    with statements_at_most(250 * A_PAGE):
        assert fan_out() < 250
    assert states(root) == {"failed": 1, "skipped": 9999}
    assert set(Execution.objects.exclude(id=root.id).values_list("reason", flat=True)) == {"dependency"}


def test_successes_unblock_ten_thousand_level_by_level() -> None:
    ids = make_graph(layered(100, 99), 9_901)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    with statements_at_most(AT_FIRST + A_LEVEL):
        end([root], State.SUCCEEDED)
    fan_out()
    assert states(root) == {"succeeded": 1, "ready": 100, "blocked": 9800}
    for layer in range(1, 6):
        ready = list(Execution.objects.filter(run_id=root.run_id, state="ready"))
        assert len(ready) == 100
        with statements_at_most(AT_FIRST + A_LEVEL):
            end(ready, State.SUCCEEDED)
        assert states(root)["succeeded"] == 1 + 100 * layer


@pytest.mark.parametrize(("how", "becomes"), [(State.SUCCEEDED, "ready"), (State.FAILED, "skipped")])
def test_ten_thousand_dependents_are_decided_a_thousand_at_a_time(how: State, becomes: str) -> None:
    ids = make_graph([(n, 0) for n in range(1, 10_000)], 10_000)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    with statements_at_most(AT_FIRST + 2 * A_LEVEL):
        end([root], how)
    with statements_at_most(20 * A_PAGE):
        assert fan_out() <= 21
    assert states(root)[becomes] == 9999


def test_thousands_of_upstreams_finishing_at_once_unblock_one_dependent() -> None:
    edges = [(n, 0) for n in range(1, 3_000)] + [(3_000, n) for n in range(1, 3_000)]
    ids = make_graph(edges, 3_001)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    end([root], State.SUCCEEDED)
    fan_out()
    ready = list(Execution.objects.filter(run_id=root.run_id, state="ready"))
    with statements_at_most(AT_FIRST + A_LEVEL):
        end(ready, State.SUCCEEDED)
    assert Execution.objects.get(job_id=ids[-1]).state == "ready"


def test_skip_propagates_through_a_chain_of_hundreds() -> None:
    ids = make_graph([(n, n - 1) for n in range(1, 400)], 400)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    with statements_at_most(AT_FIRST + 400 * A_LEVEL):
        end([root], State.FAILED)
        fan_out()
    assert states(root) == {"failed": 1, "skipped": 399}


def test_sweeping_thousands_costs_a_few_statements() -> None:
    ids = make_graph([(n, 0) for n in range(1, 3_000)], 3_000)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    resolve_dependents([MovedExecution(root.id, root.job_id, root.run_id, State.SUCCEEDED)])
    fan_out()
    assert states(root) == {"ready": 1, "blocked": 2999}, "it has not finished"
    Execution.objects.filter(id=root.id).update(state=State.SUCCEEDED, ended_at=datetime.now(UTC))
    with statements_at_most(AT_FIRST + 2 * A_LEVEL):
        assert sweep_blocked(limit=5000).unblocked == 2999


def test_thousands_of_scheduled_dependents_are_decided_together() -> None:
    ids = make_graph([(n, 0) for n in range(1, 2_000)], 2_000)
    now = datetime.now(UTC)
    Schedule.objects.bulk_create(
        Schedule(job_id=job_id, kind="every", expression="3600", starts_at=now, next_instant=later, next_fire_at=later)
        for job_id in ids[1:]
        for later in [now + timedelta(hours=1)]
    )
    upstream = make_execution(job=Job.objects.get(id=ids[0]))
    new = [
        NewExecution(s.job_id, Trigger.SCHEDULE, schedule_id=s.id, scheduled_for=datetime.now(UTC))
        for s in Schedule.objects.all()
    ]
    with statements_at_most(AT_FIRST):
        resolve_just_fired(create_fired_executions(new, set(ids[1:])))
    assert Execution.objects.filter(state="blocked").count() == 1999
    with statements_at_most(AT_FIRST + A_LEVEL):
        end([upstream], State.SUCCEEDED)
    with statements_at_most(4 * A_PAGE):
        fan_out()
    assert Execution.objects.filter(state="ready").count() == 1999


def test_submitting_checks_ten_thousand_jobs_in_a_few_statements() -> None:
    ids = make_graph(layered(101, 99), 10_000)
    owner = Job.objects.get(id=ids[0]).owner
    with statements_at_most(SUBMITTING):
        job = submit_job(owner=owner, spec=after(*ids[-100:]))
    assert job.dependencies.count() == 100
    with statements_at_most(SUBMITTING), pytest.raises(InvalidInput, match="never run together"):
        submit_job(owner=owner, spec=after(*ids[-99:], make_job(owner=owner).id))


def test_editing_checks_ten_thousand_jobs_in_a_few_statements() -> None:
    ids = make_graph(layered(101, 99), 10_000)
    with statements_at_most(SUBMITTING), pytest.raises(InvalidInput, match="cycle"):
        edit_dependencies(Job.objects.get(id=ids[0]), [DependencySpec(ids[-1], Condition.SUCCESS)])
