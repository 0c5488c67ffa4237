"""The data model: tables, constraints and the indexes that serve one named query each.

`visibility` decides who may see and change which rows; the statements are in the capability packages.
Entry points: the classes listed here; `visibility.visible_to`, `visibility.shared_with`, `visibility.require_owner`.
"""

from jobs.models.answer import IdempotencyClaim, StoredAnswer
from jobs.models.artifact import Artifact, FullOwner, Output, OwnerQuota
from jobs.models.audit import AuditEntry, Via
from jobs.models.backfill import Backfill, BackfillState
from jobs.models.beat import BeatLease, Counter, ReaperStamp
from jobs.models.calendar import Calendar
from jobs.models.execution import Attempt, DeadLetter, Execution, ExecutionEvent, JobLine, Trigger
from jobs.models.fan_out import FanOut, FanOutStep
from jobs.models.job import (
    USE_NETWORK,
    Dependency,
    Job,
    JobState,
    JobVersion,
    VersionInput,
)
from jobs.models.log import AttemptLog, LogChunk, LogIndexMark, LogPack, LogSegment
from jobs.models.queue import Queue
from jobs.models.retention import RetentionMark
from jobs.models.schedule import DroppedRange, DropReason, Schedule, ScheduleVersion
from jobs.models.secret import Secret, VersionSecret
from jobs.models.team import Membership, Team
from jobs.models.token import ALL_SECRETS, SCOPE_LADDER, ApiToken, TokenScope
from jobs.models.webhook import DeliveryState, Webhook, WebhookDelivery
from jobs.models.worker import LIVE_STATUSES, Worker, WorkerStatus

__all__ = [
    "ALL_SECRETS",
    "LIVE_STATUSES",
    "SCOPE_LADDER",
    "USE_NETWORK",
    "ApiToken",
    "Artifact",
    "Attempt",
    "AttemptLog",
    "AuditEntry",
    "Backfill",
    "BackfillState",
    "BeatLease",
    "Calendar",
    "Counter",
    "DeadLetter",
    "DeliveryState",
    "Dependency",
    "DropReason",
    "DroppedRange",
    "Execution",
    "ExecutionEvent",
    "FanOut",
    "FanOutStep",
    "FullOwner",
    "IdempotencyClaim",
    "Job",
    "JobLine",
    "JobState",
    "JobVersion",
    "LogChunk",
    "LogIndexMark",
    "LogPack",
    "LogSegment",
    "Membership",
    "Output",
    "OwnerQuota",
    "Queue",
    "ReaperStamp",
    "RetentionMark",
    "Schedule",
    "ScheduleVersion",
    "Secret",
    "StoredAnswer",
    "Team",
    "TokenScope",
    "Trigger",
    "VersionInput",
    "VersionSecret",
    "Via",
    "Webhook",
    "WebhookDelivery",
    "Worker",
    "WorkerStatus",
]
