"""What a webhook is sent: a finished execution as the API shows it, and nothing that the API would not show."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

from jobs.models import Execution, WebhookDelivery
from jobs.services.progress import progress_of

PING = "ping"
# By the names of the API; a test compares the two.
_COLUMNS = (
    "id", "job_id", "trigger", "run_id", "scheduled_for", "attempt", "tries_used", "worker_id", "pinned_worker_id",
    "exit_code", "signal", "reason", "result", "fired_at", "ready_at", "placed_at", "claimed_at", "started_at",
    "ended_at", "retry_at", "cancel_requested_at", "deadline_at", "retry_of", "dead_letter",
)  # fmt: skip


def payload_of(delivery: WebhookDelivery) -> bytes:
    """The same bytes for every try, as long as the execution is not redriven meanwhile."""
    execution = delivery.execution
    if execution is None:
        webhook = delivery.webhook
        data: dict[str, object] = {"webhook": {"id": webhook.id, "name": webhook.name}}
        happened_at = delivery.created_at
    else:
        data = {
            "execution": _shown(execution),
            "job": {"id": execution.job_id, "name": execution.job.name},
        }
        happened_at = execution.ended_at or delivery.created_at
    event = {"type": delivery.event, "timestamp": happened_at, "data": data}
    return json.dumps(event, default=_plain, separators=(",", ":")).encode()


def _shown(execution: Execution) -> dict[str, object]:
    columns = {name: getattr(execution, name) for name in _COLUMNS}
    named = {"job_name": execution.job.name, "status": execution.state, "progress": progress_of(execution)}
    return columns | named


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a payload")
