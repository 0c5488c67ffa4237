"""Times that the database decides: the current time, and how far back history reaches."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from jobs.models import RetentionMark


def database_now() -> datetime:
    """Return the database's time, which is authoritative for every process."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def read_pruned_before() -> datetime | None:
    """Return the time before which instants may have lost their executions; None: nothing was pruned yet."""
    return RetentionMark.objects.values_list("pruned_before", flat=True).first()
