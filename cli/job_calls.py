"""The verbs about jobs: what they are, when they run, and the past that is caught up."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from cli.answers import JsonObject, as_objects
from cli.calls import Calls, given, segment
from cli.records import Backfill, Execution, Instant, Job


class JobCalls(Calls):
    def submit_job(self, specification: JsonObject) -> Job:
        return Job.parse(self._transport.send("POST", "jobs", specification, key=str(uuid4())))

    def submit_jobs(self, specifications: Sequence[JsonObject]) -> list[str]:
        """All of them or none, at most 1,000; returns their ids, in order."""
        answer = self._transport.send("POST", "jobs/bulk", {"jobs": list(specifications)}, key=str(uuid4()))
        return [str(item["id"]) for item in as_objects(answer.get("results"))]

    def job(self, job_id: str) -> Job:
        return Job.parse(self._transport.get(f"jobs/{segment(job_id)}"))

    def jobs(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        owner: str | None = None,
        team: str | None = None,
        search: str | None = None,
        name: str | None = None,
        limit: int = 50,
    ) -> list[Job]:
        number = None if priority is None else str(priority)
        filters = given(status=status, queue=queue, priority=number, owner=owner, team=team, search=search, name=name)
        return [Job.parse(item) for item in self._listing("jobs", filters, limit)]

    def edit_job(self, job_id: str, changes: JsonObject) -> Job:
        return Job.parse(self._transport.send("PATCH", f"jobs/{segment(job_id)}", changes))

    def delete_job(self, job_id: str) -> None:
        self._transport.send("DELETE", f"jobs/{segment(job_id)}")

    def cancel_job(self, job_id: str) -> Job:
        return Job.parse(self._transport.send("PUT", f"jobs/{segment(job_id)}/cancel"))

    def pause_job(self, job_id: str, *, note: str = "") -> Job:
        return Job.parse(self._transport.send("POST", f"jobs/{segment(job_id)}/pause", {"note": note}))

    def resume_job(self, job_id: str) -> Job:
        return Job.parse(self._transport.send("POST", f"jobs/{segment(job_id)}/resume"))

    def execute_job(self, job_id: str, *, worker_id: str | None = None) -> Execution:
        body = given(worker_id=worker_id)
        path = f"jobs/{segment(job_id)}/execute"
        return Execution.parse(self._transport.send("POST", path, body, key=str(uuid4())))

    def next_instants(self, job_id: str, *, count: int = 5) -> list[Instant]:
        answer = self._transport.get(f"jobs/{segment(job_id)}/next", {"count": count})
        return [Instant.parse(item) for item in as_objects(answer.get("results"))]

    def preview_schedules(self, schedules: Sequence[JsonObject], *, count: int = 5) -> list[Instant]:
        """When they would fire, or why the server would refuse them; nothing is stored."""
        body = {"schedules": list(schedules), "count": count}
        answer = self._transport.send("POST", "schedules/preview", body)
        return [Instant.parse(item) for item in as_objects(answer.get("results"))]

    def backfill_job(self, job_id: str, *, from_: str, to: str) -> Backfill:
        body = {"from": from_, "to": to}
        path = f"jobs/{segment(job_id)}/backfill"
        return Backfill.parse(self._transport.send("POST", path, body, key=str(uuid4())))

    def backfills(self, job_id: str, *, limit: int = 50) -> list[Backfill]:
        return [Backfill.parse(item) for item in self._listing(f"jobs/{segment(job_id)}/backfills", {}, limit)]

    def cancel_backfill(self, backfill_id: str) -> Backfill:
        return Backfill.parse(self._transport.send("PUT", f"backfills/{segment(backfill_id)}/cancel"))
