"""The hot statements with parameters, and the indexes that each must use."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from jobs.dispatch.placement_inputs import ANY_WORKER_ID, TOP_RANK
from jobs.domain.states import Move, source_states, target_state

HOLD = {"execution_id": uuid4(), "attempt": 1, "worker_id": uuid4(), "incarnation": 1}
IDS = [uuid4(), uuid4()]
HOLDS = {"execution_ids": [uuid4()], "attempts": [1], "worker_ids": [uuid4()], "incarnations": [1]}
ROWS = {"rows": json.dumps([{"execution_id": str(uuid4()), "attempt": 1, "worker_id": str(uuid4()), "incarnation": 1}])}
ENDING = {
    "sources": source_states(Move.SUCCEED),
    "target": target_state(Move.SUCCEED),
    "terminal": True,
    "reason": "exit",
    "attempt_reason": "exit",
    "tries": 1,
    "retry_seconds": 0.0,
    "error": "",
    "log_truncated": False,
    **dict.fromkeys(("exit_code", "signal", "result", "cpu_seconds", "peak_memory_bytes", "peak_disk_bytes")),
}
CHUNKS = {"sequences": [0], "streams": ["stdout"], "times": [datetime.now(UTC)], "data": [b"x"]}
LOG_LIMITS: dict[str, Any] = {
    "max_bytes": 1, "max_chunks": 1, "chunk_bytes": 1, "full_bytes": 1, "cut_mark": "x", "full_mark": "x",
}  # fmt: skip
READY: dict[str, Any] = {
    "pool": "default", "limit": 500, "after_rank": TOP_RANK.rank, "after_id": IDS[0], "anywhere": ANY_WORKER_ID,
    "reserve_seconds": 60.0, "full_owners": [1], "full_queues": IDS, "without_network": [1], "unplaceable": "[]",
    "reserved_for": IDS, "default_executions": 0,
}  # fmt: skip
LANE: dict[str, Any] = {"min_late_seconds": 0.0, "max_late_seconds": 10.0, "held": [], "only": None, "limit": 500}
STATEMENTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("lock_due_schedules", LANE, {"schedule_due"}),
    ("lock_due_schedules", LANE | {"held": IDS, "only": IDS}, {"jobs_schedule_pkey"}),
    ("read_idle_delays", {"after": uuid4(), "only": None, "limit": 500}, {"schedule_unarmed_delay"}),
    ("read_open_backfills", {"limit": 500, "max_unfinished": 100}, {"backfill_by_turn", "execution_unfinished_of_job"}),
    ("read_current_versions", {"job_ids": IDS}, {"jobs_job_pkey", "jobs_jobversion_pkey"}),
    ("read_next_due", {}, {"schedule_due", "execution_backing_off"}),
    ("wake_backed_off", {"limit": 500}, {"execution_backing_off"}),
    (
        "scan_ready_executions",
        READY,
        {"execution_unfinished_of_job", "execution_lines", "execution_owner_lines", "execution_held"},
    ),
    ("unpark_executions", {"job_ids": IDS, "most": 100}, {"execution_lines", "execution_unfinished_of_job"}),
    ("unpark_executions_of_owners", {"rooms": "[]", "most": 100}, {"execution_owner_lines"}),
    ("find_jobs_with_parked", {"after": IDS[0], "limit": 100}, {"execution_lines"}),
    ("find_longest_ready", {"bound": timedelta(minutes=1), "limit": 20}, {"execution_lines", "execution_owner_lines"}),
    ("park_executions", {"rows": "[]"}, {"jobs_execution_pkey"}),
    ("count_owner_backlog", {"owner_id": 1, "limit": 100}, {"execution_unfinished_of_job"}),
    ("find_growing_owners", {"limit": 2, "active_owners": 9, "logs": 3, "log_bytes": 1}, {"execution_held"}),
    ("read_limited_owners", {"default_executions": 1}, {"execution_held"}),
    ("read_free_capacity", {"pool": "default", "full_ones": False}, {"execution_held"}),
    ("mark_for_republishing", {"limit": 500, "republish_seconds": 2.0}, {"execution_held"}),
    ("mark_suspect_workers", {"unclaimed_seconds": 30.0}, {"execution_held"}),
    (
        "count_unfinished_of_jobs",
        {"jobs": json.dumps([{"id": str(job_id), "count_limit": 1000, "max_cancelled": 1000} for job_id in IDS])},
        {"execution_unfinished_of_job"},
    ),
    (
        "find_overdue",
        {"limit": 500, "excluding": []},
        {"execution_overdue"},
    ),
    ("return_unclaimed", {"limit": 500, "unclaimed_seconds": 30.0}, {"execution_held"}),
    ("find_orphaned_workers", {"limit": 1000}, {"execution_held"}),
    (
        "find_placed_work",
        {"worker_id": uuid4(), "incarnation": 1, "listed": IDS, "limit": 100},
        {"execution_held"},
    ),
    (
        "lock_executions_to_lose",
        {"worker_ids": IDS, "keep_incarnations": [1, None], "listed": IDS, "unlisted_seconds": 30.0}
        | {"only": None, "excluding": [], "limit": 500},
        {"execution_held"},
    ),
    (
        "release_from_draining_workers",
        {"limit": 500, "sources": ["queued"], "target": target_state(Move.RELEASE)},
        {"execution_held"},
    ),
]
BY_KEY: list[tuple[str, dict[str, Any], set[str]]] = [
    (
        "find_missing_dependents",
        {"job_ids": IDS, "run_ids": IDS, "limit": 1001},
        {"execution_once_per_run", "dependency_by_upstream"},
    ),
    (
        "find_waiting_dependents",
        {"job_ids": IDS, "run_ids": IDS, "limit": 10_001},
        {"execution_once_per_run", "execution_unfinished_of_job", "dependency_by_upstream"},
    ),
    ("count_dependency_edges", {"job_ids": IDS, "limit": 1001}, {"dependency_by_upstream"}),
    ("read_fan_out_page", {"run_ids": IDS, "job_ids": IDS, "after": IDS, "limit": 1000}, {"dependency_by_upstream"}),
    ("find_missing_in_runs", {"job_ids": IDS, "run_ids": IDS}, {"execution_once_per_run", "dependency_by_upstream"}),
    (
        "find_waiting_in_runs",
        {"job_ids": IDS, "run_ids": IDS, "limit": 1000},
        {"execution_once_per_run", "execution_unfinished_of_job"},
    ),
    (
        "expire_overdue",
        {"ids": IDS, "sources": source_states(Move.EXPIRE), "target": target_state(Move.EXPIRE)},
        {"jobs_execution_pkey"},
    ),
    ("lock_blocked_executions", {"ids": IDS}, {"execution_blocked"}),
    ("evaluate_in_runs", {"ids": IDS}, {"execution_once_per_run"}),
    ("evaluate_by_instant", {"ids": IDS}, {"execution_once_per_instant", "execution_list_by_job"}),
    ("lock_held_attempt", HOLD, {"jobs_execution_pkey"}),
    (
        "lose_executions",
        {"ids": IDS, "max_times_lost": 5, "reason": "lost"},
        {"jobs_execution_pkey", "attempt_number_once"},
    ),
    ("move_to_current_queue", {"ids": IDS}, {"jobs_execution_pkey"}),
    (
        "claim_executions",
        HOLDS | {"attempt_ids": [uuid4()], "sources": source_states(Move.CLAIM), "target": target_state(Move.CLAIM)},
        {"jobs_execution_pkey", "jobs_worker_pkey"},
    ),
    (
        "start_attempts",
        ROWS | {"sources": source_states(Move.START), "target": target_state(Move.START)},
        {"jobs_execution_pkey", "attempt_number_once"},
    ),
    (
        "succeed_attempts",
        ROWS
        | {
            "sources": source_states(Move.SUCCEED),
            "starting": source_states(Move.START),
            "target": target_state(Move.SUCCEED),
        },
        {"jobs_execution_pkey", "attempt_number_once", "jobs_schedule_pkey"},
    ),
    ("lock_execution", HOLD, {"jobs_execution_pkey"}),
    ("finish_attempt", HOLD | ENDING, {"jobs_execution_pkey", "attempt_number_once"}),
    (
        "append_log",
        HOLD | CHUNKS | LOG_LIMITS,
        {"jobs_execution_pkey", "attempt_number_once", "jobs_job_pkey"},
    ),
    (
        "announce_output",
        HOLD | {"announced": "0" * 64, "size": 1, "max_files": 1, "max_bytes": 1},
        {"jobs_execution_pkey", "attempt_number_once"},
    ),
    ("report_progress", HOLD | {"percent": 5.0, "message": "x"}, {"jobs_execution_pkey"}),
]
