"""Partitions for the coming days: created once, and never hiding rows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection

from jobs.db.partitions import PARTITIONED_TABLES, create_partitions
from jobs.models import ExecutionEvent, LogChunk
from jobs.tasks import create_partitions as create_partitions_task

pytestmark = pytest.mark.django_db

FAR = date(2040, 2, 28)


def partitions(table: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [table])
        return {name for (name,) in cursor.fetchall()}


def partition_of(table: str, column: str, value: datetime) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT tableoid::regclass::text FROM {table} WHERE {column} = %s", [value])  # noqa: S608
        (name,) = cursor.fetchone()
    return str(name)


def test_fresh_database_has_partitions_for_two_weeks() -> None:
    today = datetime.now(UTC).date()
    for table in PARTITIONED_TABLES:
        names = partitions(table)
        # The database may have been created just before midnight.
        assert {f"{table}_{today + timedelta(days=n):%Y%m%d}" for n in range(14)} <= names
        assert f"{table}_default" in names


def test_missing_partitions_are_created_once() -> None:
    created = create_partitions(today=FAR, days=2)
    assert created == [f"{table}_{day}" for day in ("20400228", "20400229", "20400301") for table in PARTITIONED_TABLES]
    assert create_partitions(today=FAR, days=2) == []
    assert set(created) <= {name for table in PARTITIONED_TABLES for name in partitions(table)}


def test_log_partitions_use_lz4() -> None:
    create_partitions(today=FAR, days=0)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attstorage, attcompression FROM pg_attribute"
            " WHERE attrelid = 'jobs_logchunk_20400228'::regclass AND attname = 'data'"
        )
        storage, compression = cursor.fetchone()
    assert storage == "e" or compression == "l"


def event(at: datetime) -> None:
    ExecutionEvent.objects.create(id=uuid4(), created_at=at, execution_id=uuid4(), attempt=1, name="x", detail={})


def test_partitions_split_at_midnight_utc() -> None:
    create_partitions(today=FAR, days=0)
    first = datetime(2040, 2, 28, tzinfo=UTC)
    for at in (first, first + timedelta(days=1) - timedelta(microseconds=1)):
        event(at)
        assert partition_of("jobs_executionevent", "created_at", at) == "jobs_executionevent_20400228"
    event(first + timedelta(days=1))
    assert partition_of("jobs_executionevent", "created_at", first + timedelta(days=1)) == "jobs_executionevent_default"


def test_rows_in_the_default_partition_do_not_stop_other_days() -> None:
    LogChunk.objects.create(
        day=FAR, execution_id=uuid4(), attempt=1, sequence=0, stream="stdout", logged_at=datetime.now(UTC), data=b"x"
    )
    created = create_partitions(today=FAR, days=1)
    assert created == [
        f"{table}_{day}"
        for day in ("20400228", "20400229")
        for table in PARTITIONED_TABLES
        if (table, day) != ("jobs_logchunk", "20400228")
    ]
    assert LogChunk.objects.filter(day=FAR).count() == 1


def test_system_task_finds_all_partitions_present() -> None:
    create_partitions_task()
    assert create_partitions_task() == []
