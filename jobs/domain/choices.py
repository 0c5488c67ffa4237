"""Choices that a job's definition offers."""

from __future__ import annotations

from enum import StrEnum


class Delivery(StrEnum):
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Overlap(StrEnum):
    """What firing does when a job has reached `max_concurrency`."""

    QUEUE = "queue"  # the new execution waits; the backlog is bounded
    SKIP = "skip"  # the new execution is skipped
    CANCEL_RUNNING = "cancel_running"  # the oldest executions are cancelled


class Condition(StrEnum):
    """Outcome of an upstream that lets its dependent run."""

    SUCCESS = "success"
    FAILURE = "failure"
    COMPLETION = "completion"


def labelled(choices: type[StrEnum]) -> list[tuple[str, str]]:
    """Return the choices of a model field, with each name as the label."""
    return [(choice.value, choice.name.replace("_", " ").title()) for choice in choices]
