"""The data model: tables, constraints and the indexes that serve one named query each."""

from jobs.models.artifact import Artifact, Output
from jobs.models.beat import BeatLease
from jobs.models.execution import Attempt, Execution, ExecutionEvent, Trigger
from jobs.models.job import Condition, Delivery, Dependency, Job, JobState, JobVersion
from jobs.models.log import LogChunk
from jobs.models.queue import Queue
from jobs.models.schedule import Schedule
from jobs.models.token import ApiToken
from jobs.models.worker import Worker, WorkerStatus

__all__ = [
    "ApiToken",
    "Artifact",
    "Attempt",
    "BeatLease",
    "Condition",
    "Delivery",
    "Dependency",
    "Execution",
    "ExecutionEvent",
    "Job",
    "JobState",
    "JobVersion",
    "LogChunk",
    "Output",
    "Queue",
    "Schedule",
    "Trigger",
    "Worker",
    "WorkerStatus",
]
