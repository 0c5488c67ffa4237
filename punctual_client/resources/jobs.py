"""Jobs: submit, edit, run and list them, preview their instants and backfill past ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from punctual_client.json_fields import (
    JsonObject,
    as_objects,
    int_field,
    optional_int_field,
    optional_text_field,
    text_field,
    text_list_field,
)
from punctual_client.resources.base import ApiCalls, filter_fields, omit_none, path_segment
from punctual_client.resources.executions import Execution


@dataclass(frozen=True)
class Job:
    id: str
    name: str
    status: str
    next_instants: tuple[str, ...]
    warnings: tuple[str, ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Job:
        schedules = as_objects(data.get("schedules") or [])
        instants = [instant for schedule in schedules if (instant := optional_text_field(schedule, "next_instant"))]
        return cls(
            id=text_field(data, "id"),
            name=text_field(data, "name"),
            status=text_field(data, "status"),
            next_instants=tuple(sorted(instants)),
            warnings=text_list_field(data, "warnings"),
            raw=data,
        )

    @property
    def name_and_owner(self) -> str:
        """`nightly of alice`: staff can act on the jobs of other users."""
        owner = optional_text_field(self.raw, "owner")
        return f"{self.name} of {owner}" if owner else self.name


@dataclass(frozen=True)
class Instant:
    at: str
    local: str
    note: str | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Instant:
        return cls(
            at=text_field(data, "at"),
            local=text_field(data, "local"),
            note=optional_text_field(data, "note"),
            raw=data,
        )


@dataclass(frozen=True)
class Backfill:
    """Executions for a range of past instants, `done` of `expected` created."""

    id: str
    status: str
    done: int
    expected: int | None
    ended_at: str | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Backfill:
        return cls(
            id=text_field(data, "id"),
            status=text_field(data, "status"),
            done=int_field(data, "created_count"),
            expected=optional_int_field(data, "expected_count"),
            ended_at=optional_text_field(data, "ended_at"),
            raw=data,
        )


class JobCalls(ApiCalls):
    def submit_job(self, specification: JsonObject) -> Job:
        return Job.parse(self._transport.send("POST", "jobs", specification, key=str(uuid4())))

    def submit_jobs(self, specifications: Sequence[JsonObject]) -> list[str]:
        """Submit all or none of up to 1,000 jobs; return their ids, in order."""
        answer = self._transport.send("POST", "jobs/bulk", {"jobs": list(specifications)}, key=str(uuid4()))
        return [str(item["id"]) for item in as_objects(answer.get("results"))]

    def job(self, job_id: str) -> Job:
        return Job.parse(self._transport.get(f"jobs/{path_segment(job_id)}"))

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
        filters = filter_fields(
            status=status, queue=queue, priority=number, owner=owner, team=team, search=search, name=name
        )
        return [Job.parse(item) for item in self._list("jobs", filters, limit)]

    def edit_job(self, job_id: str, changes: JsonObject) -> Job:
        return Job.parse(self._transport.send("PATCH", f"jobs/{path_segment(job_id)}", changes))

    def delete_job(self, job_id: str) -> None:
        self._transport.send("DELETE", f"jobs/{path_segment(job_id)}")

    def cancel_job(self, job_id: str) -> Job:
        return Job.parse(self._transport.send("PUT", f"jobs/{path_segment(job_id)}/cancel"))

    def pause_job(self, job_id: str, *, note: str = "") -> Job:
        return Job.parse(self._transport.send("POST", f"jobs/{path_segment(job_id)}/pause", {"note": note}))

    def resume_job(self, job_id: str) -> Job:
        return Job.parse(self._transport.send("POST", f"jobs/{path_segment(job_id)}/resume"))

    def execute_job(self, job_id: str, *, worker_id: str | None = None) -> Execution:
        body = omit_none(worker_id=worker_id)
        path = f"jobs/{path_segment(job_id)}/execute"
        return Execution.parse(self._transport.send("POST", path, body, key=str(uuid4())))

    def next_instants(self, job_id: str, *, count: int = 5) -> list[Instant]:
        answer = self._transport.get(f"jobs/{path_segment(job_id)}/next", {"count": count})
        return [Instant.parse(item) for item in as_objects(answer.get("results"))]

    def preview_schedules(self, schedules: Sequence[JsonObject], *, count: int = 5) -> list[Instant]:
        """Return the next instants of schedules that are not stored; raise what the server refuses."""
        body = {"schedules": list(schedules), "count": count}
        answer = self._transport.send("POST", "schedules/preview", body)
        return [Instant.parse(item) for item in as_objects(answer.get("results"))]

    def backfill_job(self, job_id: str, *, from_: str, to: str) -> Backfill:
        body = {"from": from_, "to": to}
        path = f"jobs/{path_segment(job_id)}/backfill"
        return Backfill.parse(self._transport.send("POST", path, body, key=str(uuid4())))

    def backfills(self, job_id: str, *, limit: int = 50) -> list[Backfill]:
        return [Backfill.parse(item) for item in self._list(f"jobs/{path_segment(job_id)}/backfills", {}, limit)]

    def cancel_backfill(self, backfill_id: str) -> Backfill:
        return Backfill.parse(self._transport.send("PUT", f"backfills/{path_segment(backfill_id)}/cancel"))
