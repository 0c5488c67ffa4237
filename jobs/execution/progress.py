"""Progress as a run reports it; it is written with the log (see `logs`) and read here.

It belongs to one attempt: once another attempt is placed, the old report is ignored without being cleared.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from jobs.models import Execution


class ReportedProgress(TypedDict):
    percent: float | None
    message: str
    at: datetime


def read_progress(execution: Execution) -> ReportedProgress | None:
    reported = execution.progress
    if reported is None or reported["attempt"] != execution.attempt:
        return None
    return ReportedProgress(
        percent=reported["percent"], message=reported["message"], at=datetime.fromisoformat(reported["at"])
    )


def format_progress(execution: Execution) -> str:
    reported = read_progress(execution)
    if reported is None:
        return ""
    percent = "" if reported["percent"] is None else f"{reported['percent']:g} %"
    return " ".join(part for part in (percent, reported["message"]) if part)
