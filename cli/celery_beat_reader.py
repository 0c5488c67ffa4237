"""Prints the `beat_schedule` of a Celery app as JSON; run by itself, with the Python that the app runs with.

It imports nothing but the app, and is written for any Python 3.7 or newer: that one is not ours. What the app prints
while it is imported goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from datetime import datetime, timedelta
from typing import Any

CRONTAB = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def schedule_of(value: Any) -> dict[str, Any]:
    kind = type(value).__name__
    if isinstance(value, timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"seconds": float(value)}
    if all(hasattr(value, f"_orig_{name}") for name in CRONTAB):
        return {"crontab": {name: written(getattr(value, f"_orig_{name}")) for name in CRONTAB}}
    if kind == "solar":
        return {"solar": {"event": value.event, "latitude": value.lat, "longitude": value.lon}}
    if kind == "schedule" and isinstance(getattr(value, "run_every", None), timedelta):
        return {"seconds": value.run_every.total_seconds()}
    return {"unknown": kind}


def written(field: Any) -> str:
    """A field may also be a number or a set of them."""
    return field if isinstance(field, str) else ",".join(map(str, sorted(field))) if iterable(field) else str(field)


def iterable(value: Any) -> bool:
    return hasattr(value, "__iter__")


def entry_of(name: Any, entry: Any) -> dict[str, Any]:
    options = {key: value for key, value in (entry.get("options") or {}).items() if value is not None}
    return {
        "name": str(name),
        "task": entry.get("task"),
        "args": list(entry.get("args") or ()),
        "kwargs": dict(entry.get("kwargs") or {}),
        "options": {key: option(value) for key, value in options.items()},
        "schedule": schedule_of(entry.get("schedule")),
    }


def option(value: Any) -> Any:
    """An expiry may be a number of seconds, a duration or a time."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float, str)):
        return value
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def read(word: str) -> dict[str, Any]:
    module, _, attribute = word.partition(":")
    app = getattr(importlib.import_module(module), attribute or "app")
    zone = app.conf.timezone or "UTC"
    return {
        "timezone": str(zone),
        "entries": [entry_of(name, dict(entry)) for name, entry in app.conf.beat_schedule.items()],
    }


def plain(value: Any) -> Any:
    return {"not json": type(value).__name__}


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    sys.path[0] = os.getcwd()
    json.dump(read(sys.argv[1]), answers, default=plain)
