"""Script that prints the `beat_schedule` of a Celery app as JSON, run with the Python of the app.

It imports only the app and works with Python 3.7 or newer. Output of the app during its import goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from datetime import datetime, timedelta
from typing import Any

CRONTAB_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def serialize_schedule(value: Any) -> dict[str, Any]:
    kind = type(value).__name__
    if isinstance(value, timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"seconds": float(value)}
    if all(hasattr(value, f"_orig_{name}") for name in CRONTAB_FIELDS):
        return {"crontab": {name: format_crontab_field(getattr(value, f"_orig_{name}")) for name in CRONTAB_FIELDS}}
    if kind == "solar":
        return {"solar": {"event": value.event, "latitude": value.lat, "longitude": value.lon}}
    if kind == "schedule" and isinstance(getattr(value, "run_every", None), timedelta):
        return {"seconds": value.run_every.total_seconds()}
    return {"unknown": kind}


def format_crontab_field(field: Any) -> str:
    """Format a field, which may be text, a number or a set of numbers."""
    return field if isinstance(field, str) else ",".join(map(str, sorted(field))) if is_iterable(field) else str(field)


def is_iterable(value: Any) -> bool:
    return hasattr(value, "__iter__")


def serialize_entry(name: Any, entry: Any) -> dict[str, Any]:
    options = {key: value for key, value in (entry.get("options") or {}).items() if value is not None}
    return {
        "name": str(name),
        "task": entry.get("task"),
        "args": list(entry.get("args") or ()),
        "kwargs": dict(entry.get("kwargs") or {}),
        "options": {key: serialize_option(value) for key, value in options.items()},
        "schedule": serialize_schedule(entry.get("schedule")),
    }


def serialize_option(value: Any) -> Any:
    """Serialize an option; an expiry may be a number of seconds, a duration or a time."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float, str)):
        return value
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def read_beat_schedule(word: str) -> dict[str, Any]:
    module, _, attribute = word.partition(":")
    app = getattr(importlib.import_module(module), attribute or "app")
    zone = app.conf.timezone or "UTC"
    return {
        "timezone": str(zone),
        "entries": [serialize_entry(name, dict(entry)) for name, entry in app.conf.beat_schedule.items()],
    }


def mark_non_json(value: Any) -> Any:
    return {"not json": type(value).__name__}


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    sys.path[0] = os.getcwd()
    json.dump(read_beat_schedule(sys.argv[1]), answers, default=mark_non_json)
