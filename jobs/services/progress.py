"""How far a run says it is: written with its log (see `logs`), read here.

It is the word of one attempt. What an earlier one said says nothing of the next, so it is shown no more once another
attempt is placed; nothing has to be cleared for that.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from jobs.models import Execution


class Said(TypedDict):
    percent: float | None
    message: str
    at: datetime


def progress_of(execution: Execution) -> Said | None:
    said = execution.progress
    if said is None or said["attempt"] != execution.attempt:
        return None
    return Said(percent=said["percent"], message=said["message"], at=datetime.fromisoformat(said["at"]))


def progress_in_words(execution: Execution) -> str:
    said = progress_of(execution)
    if said is None:
        return ""
    percent = "" if said["percent"] is None else f"{said['percent']:g} %"
    return " ".join(part for part in (percent, said["message"]) if part)
