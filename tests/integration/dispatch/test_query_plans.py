"""Hot statements use the indexes that their headers name, whatever the size of the table."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from jobs.db import sql
from jobs.dispatch.placement import place_ready_executions
from jobs.dispatch.placement_inputs import ANY_WORKER_ID
from jobs.domain import limits
from jobs.domain.states import Move, State, source_states, target_state
from jobs.execution.transitions import NewExecution, create_executions
from jobs.models import Artifact, Execution, Job, OwnerQuota, Trigger
from tests.integration.dispatch.hot_statements import BY_KEY, LANE, READY, STATEMENTS
from tests.support.factories import make_execution, make_job, make_schedule, make_user, make_worker, run_on

pytestmark = pytest.mark.django_db

TABLES = ", ".join(
    f"jobs_{name}" for name in ("job", "jobversion", "schedule", "dependency", "worker", "attempt", "execution")
)
# A copy of the existing row, except for the given columns.
CLONE = "INSERT INTO jobs_{0} SELECT (jsonb_populate_record(o, {1})).* FROM jobs_{0} o, fresh"
CLONES = {
    "job": "jsonb_build_object('id', fresh.job_id, 'name', n, 'current_version_id', fresh.version_id)",
    "jobversion": "jsonb_build_object('id', fresh.version_id, 'job_id', fresh.job_id)",
    "schedule": "jsonb_build_object('id', uuidv7(), 'job_id', fresh.job_id)",
    "worker": "jsonb_build_object('id', uuidv7(), 'name', n)",
}
CHAIN = """
INSERT INTO jobs_dependency (id, job_id, upstream_id, condition)
SELECT uuidv7(), f.job_id, u.job_id, 'success' FROM fresh f JOIN fresh u ON u.n = f.n - 1
"""
ATTEMPTS = """
INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, error, log_truncated)
SELECT uuidv7(), e.id, 1, w.id, 1, now(), now(), '', false
  FROM jobs_execution e, (SELECT id FROM jobs_worker LIMIT 1) w
"""


@pytest.fixture(autouse=True)
def make_busy_tables() -> None:
    """Insert hundreds of jobs, schedules, dependencies and workers into truncated tables.

    Otherwise rows of other tests, and the time of the last autovacuum, would decide the join order.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLES} CASCADE")
        make_schedule()
        make_worker()
        cursor.execute(
            "CREATE TEMPORARY TABLE fresh ON COMMIT DROP AS"
            " SELECT n, uuidv7() AS job_id, uuidv7() AS version_id FROM generate_series(1, 300) n"
        )
        for table, given in CLONES.items():
            cursor.execute(CLONE.format(table, given))
        cursor.execute(CHAIN)
    analyze()


def analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute(ATTEMPTS)
        cursor.execute(f"ANALYZE {TABLES}, jobs_queue")


@pytest.fixture
def ordinary_table() -> None:
    """Many finished, some ready, a few active executions, analyzed: what the planner chooses in production."""
    job, worker, now = make_job(), make_worker(), datetime.now(UTC)
    create_executions([NewExecution(job.id, Trigger.MANUAL) for _ in range(2000)])
    ids = list(Execution.objects.values_list("id", flat=True))
    Execution.objects.filter(id__in=ids[300:]).update(state="succeeded", ended_at=now)
    Execution.objects.filter(id__in=ids[:10]).update(
        state="queued", worker_id=worker.worker_id, incarnation=1, attempt=1, placed_at=now
    )
    Execution.objects.filter(id__in=ids[10:20]).update(state="backing_off", retry_at=now)
    analyze()


def plan(name: str, parameters: dict[str, Any], *, sorting: bool = True) -> str:
    with connection.cursor() as cursor:
        # The tables are small: the test is about possible indexes, not their cost.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"SET LOCAL enable_sort = {'on' if sorting else 'off'}")
        cursor.execute(f"EXPLAIN {sql.statement(name)}", parameters)
        return "\n".join(line for (line,) in cursor.fetchall())


def used(plan_text: str) -> set[str]:
    return set(re.findall(r"Scan(?: Backward)? using (\w+)", plan_text))


@pytest.mark.parametrize(("name", "parameters", "indexes"), STATEMENTS, ids=[s[0] for s in STATEMENTS])
def test_hot_statement_uses_its_indexes(
    ordinary_table: None, name: str, parameters: dict[str, Any], indexes: set[str]
) -> None:
    plan_text = plan(name, parameters)
    assert indexes <= used(plan_text), plan_text
    assert "Seq Scan on jobs_execution " not in plan_text, plan_text
    assert "Seq Scan on jobs_schedule" not in plan_text, plan_text


def test_single_execution_is_found_by_its_key() -> None:
    job = make_job()
    create_executions([NewExecution(job.id, Trigger.MANUAL) for _ in range(2000)])
    worker = make_worker()
    now = datetime.now(UTC)
    Execution.objects.update(
        state="running",
        worker_id=worker.worker_id,
        incarnation=1,
        attempt=1,
        placed_at=now,
        claimed_at=now,
        started_at=now,
    )
    analyze()
    for name, parameters, indexes in BY_KEY:
        plan_text = plan(name, {k: worker.worker_id if k == "worker_id" else v for k, v in parameters.items()})
        assert indexes <= used(plan_text), f"{name}: {plan_text}"


def test_placed_execution_is_found_by_its_key_in_a_table_that_was_small_when_it_was_planned() -> None:
    """A prepared plan is used until the next ANALYZE, however the table grows."""
    parameters: dict[str, Any] = {
        "rows": "[]",
        "sources": source_states(Move.PLACE),
        "target": target_state(Move.PLACE),
    }
    create_executions([NewExecution(job_id, Trigger.MANUAL) for job_id in Job.objects.values_list("id", flat=True)])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql.statement('place_executions')}", parameters)
        plan_text = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan on jobs_execution" not in plan_text, plan_text


@pytest.mark.parametrize("name", ["start_attempts", "succeed_attempts"])
def test_report_is_stored_by_key_in_tables_that_were_small_when_it_was_planned(name: str) -> None:
    worker = make_worker(slots=200)
    for _ in range(100):
        run_on(worker, make_execution())
    (parameters,) = (each for statement, each, _ in BY_KEY if statement == name)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql.statement(name)}", parameters | {"rows": "[]"})
        plan_text = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan on jobs_" not in plan_text, plan_text


def test_due_schedules_are_found_by_an_index_condition() -> None:
    plan_text = plan("lock_due_schedules", LANE | {"limit": 1})
    assert re.search(r"Index Cond: \(\(next_fire_at <= .*\) AND \(next_fire_at > ", plan_text), plan_text


def test_storage_of_an_owner_is_summed_from_indexes_alone() -> None:
    owner, now = make_user(), datetime.now(UTC)
    Artifact.objects.bulk_create(
        Artifact(owner=owner, sha256=f"{number:064x}", size=1, deleted_at=now if number % 2 else None)
        for number in range(1000)
    )
    with connection.cursor() as cursor:
        # In an empty table all indexes cost the same, and the planner chooses any of them.
        cursor.execute("ANALYZE jobs_artifact")
    plan_text = plan("read_storage_use", {"owner_ids": [owner.id, owner.id + 1], "default_mb": 1})
    alone = set(re.findall(r"Index Only Scan using (\w+)", plan_text))
    assert alone == {"artifact_by_owner", "output_bytes_by_owner", "log_bytes_by_owner"}, plan_text
    assert "Seq Scan on jobs_" not in plan_text, plan_text


def test_every_index_named_in_a_header_exists() -> None:
    named = set()
    for file in sql.PACKAGES.rglob("*.sql"):
        header = "".join(line for line in file.read_text().splitlines(keepends=True) if line.startswith("--"))
        for line in re.findall(r"(?:Index(?:es)?|Keys?): ([^.\n]*)", header):
            named |= set(re.findall(r"\b(?:execution|schedule|dependency)_\w+", line))
    assert named, "no header names an index"
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")
        existing = {name for (name,) in cursor.fetchall()}
    assert named <= existing


def test_batch_of_firing_is_bounded() -> None:
    assert limits.FIRE_BATCH_SCHEDULES <= limits.FIRE_BATCH_INSTANTS <= 2000


def test_candidates_are_scanned_by_rank_without_parked_executions(ordinary_table: None) -> None:
    plan_text = plan("scan_ready_executions", READY, sorting=False)
    assert "execution_candidates" in used(plan_text), plan_text


def test_pass_reads_nothing_that_limits_hold_back() -> None:
    """Whether a hundred or a thousand wait for a job or an owner at its limit, a pass reads a handful of rows."""
    make_worker()
    job, other, owner = make_job(), make_job(max_concurrency=None), make_user()
    OwnerQuota.objects.create(owner=owner, concurrent_executions=1)
    theirs = make_job(owner=owner, max_concurrency=None)
    for more in (100, 1000):
        for each in (job, theirs):
            create_executions([NewExecution(each.id, Trigger.MANUAL)] * more)
        for _ in range(3):
            place_ready_executions()
        create_executions([NewExecution(other.id, Trigger.MANUAL)])
        plan_text = explain_scan({"full_owners": [owner.pk]})
        assert rows_read(plan_text) < 20, plan_text
        assert place_ready_executions().placed == 1


@pytest.mark.parametrize("known", [False, True])
def test_pass_counts_active_executions_without_waiting_or_finished_ones(known: bool) -> None:
    worker, job = make_worker(), make_job(max_concurrency=5)
    for _ in range(3):
        run_on(worker, make_execution(job=job))
    for _ in range(40):
        run_on(worker, make_execution())
    create_executions([NewExecution(job.id, Trigger.MANUAL, state=State.BLOCKED)] * 1000)
    ended = create_executions([NewExecution(job.id, Trigger.MANUAL)] * 1000)
    Execution.objects.filter(id__in=ended).update(state="succeeded", ended_at=datetime.now(UTC))
    create_executions([NewExecution(job.id, Trigger.MANUAL)])
    if known:
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE jobs_execution")
    plan_text = explain_scan({})
    assert rows_read(plan_text) < 200, plan_text
    assert place_ready_executions().placed == 1
    create_executions([NewExecution(job.id, Trigger.MANUAL)] * 5)
    assert [place_ready_executions().placed for _ in range(2)] == [1, 0], "three were active, one was placed"


def test_scan_compares_no_candidate_with_every_other() -> None:
    """Whatever the statistics say: the planner joins sets that it believes to be small by comparing all rows."""
    make_worker()
    jobs = list(Job.objects.values_list("id", flat=True))
    create_executions([NewExecution(job_id, Trigger.MANUAL) for job_id in jobs])
    assert rows_handled(explain_scan({"limit": len(jobs)})) < 60 * len(jobs)
    assert place_ready_executions().placed >= 4


def explain_scan(parameters: dict[str, Any]) -> dict[str, Any]:
    """Explain a scan from the top, as in a pass."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {sql.statement('scan_ready_executions')}",
            READY | {"after_id": ANY_WORKER_ID, "full_owners": [], "full_queues": [], **parameters},
        )
        plan_text: dict[str, Any] = cursor.fetchone()[0][0]["Plan"]
    return plan_text


def rows_handled(node: dict[str, Any]) -> float:
    """Count the rows that all nodes of the plan returned or compared."""
    own = (node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)) * node["Actual Loops"]
    return float(own) + sum(map(rows_handled, node.get("Plans", [])))


def rows_read(node: dict[str, Any]) -> float:
    """Count the rows of executions that the plan read, returned or not."""
    own = 0.0
    if node.get("Relation Name") == "jobs_execution":
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return own + sum(map(rows_read, node.get("Plans", [])))
