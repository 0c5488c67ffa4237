"""The body of a webhook: a finished execution as the API shows it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

from jobs.execution.progress import read_progress
from jobs.models import Execution, WebhookDelivery

PING = "ping"
# The field names of the API; a test compares them.
_COLUMNS = (
    "id", "job_id", "trigger", "run_id", "scheduled_for", "attempt", "tries_used", "worker_id", "pinned_worker_id",
    "exit_code", "signal", "reason", "result", "fired_at", "ready_at", "placed_at", "claimed_at", "started_at",
    "ended_at", "retry_at", "cancel_requested_at", "deadline_at", "retry_of", "dead_letter",
)  # fmt: skip


def build_payload(delivery: WebhookDelivery) -> bytes:
    """Return the body, the same for every try unless the execution is redriven."""
    execution = delivery.execution
    if execution is None:
        webhook = delivery.webhook
        data: dict[str, object] = {"webhook": {"id": webhook.id, "name": webhook.name}}
        happened_at = delivery.created_at
    else:
        data = {
            "execution": _format_execution(execution),
            "job": {"id": execution.job_id, "name": execution.job.name},
        }
        happened_at = execution.ended_at or delivery.created_at
    event = {"type": delivery.event, "timestamp": happened_at, "data": data}
    return json.dumps(event, default=_to_json, separators=(",", ":")).encode()


def _format_execution(execution: Execution) -> dict[str, object]:
    columns = {name: getattr(execution, name) for name in _COLUMNS}
    named = {"job_name": execution.job.name, "status": execution.state, "progress": read_progress(execution)}
    return columns | named


def _to_json(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"Cannot serialize {type(value).__name__} in a payload")
