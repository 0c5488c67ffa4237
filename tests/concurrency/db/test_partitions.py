"""Creating partitions during reads and writes: no long waits, and no transaction has to end first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from jobs.db.partitions import (
    EVENTS_TABLE,
    LOCK_TIMEOUT_SECONDS,
    PARTITIONED_TABLES,
    create_partitions,
    list_partition_days,
)
from tests.support.barriers import at_once
from tests.support.own_connection import own_connection

pytestmark = pytest.mark.django_db(transaction=True)

FAR = date(2041, 2, 28)
SLACK_SECONDS = 1.5
INSERT = (
    "INSERT INTO jobs_executionevent (created_at, id, execution_id, attempt, name, detail)"
    " VALUES (%s, %s, %s, 1, 'x', '{}')"
)


@pytest.fixture(autouse=True)
def _drop_partitions() -> Iterator[None]:
    yield
    with connection.cursor() as cursor:
        for table in PARTITIONED_TABLES:
            cursor.execute(f"DROP TABLE IF EXISTS {table}_{FAR:%Y%m%d}")


def write(other: psycopg.Connection) -> None:
    other.execute(INSERT, [datetime.now(UTC), uuid4(), uuid4()])


def test_long_write_transaction_does_not_block_new_partitions() -> None:
    with own_connection() as writer:
        write(writer)
        created = create_partitions(today=FAR, days=0)
        assert created == [f"{table}_{FAR:%Y%m%d}" for table in PARTITIONED_TABLES]
        write(writer)
        writer.rollback()


def test_long_read_transaction_delays_others_only_briefly() -> None:
    with own_connection() as reader:
        reader.execute("SELECT count(*) FROM jobs_executionevent")

        def write_repeatedly() -> float:
            longest = 0.0
            until = time.monotonic() + 2 * LOCK_TIMEOUT_SECONDS
            with own_connection(autocommit=True) as writer:
                while time.monotonic() < until:
                    started = time.monotonic()
                    write(writer)
                    longest = max(longest, time.monotonic() - started)
            return longest

        def create() -> float:
            started = time.monotonic()
            create_partitions(today=FAR, days=3)
            return time.monotonic() - started

        longest_write, creating = at_once([write_repeatedly, create])
        assert longest_write < LOCK_TIMEOUT_SECONDS + SLACK_SECONDS
        assert creating < LOCK_TIMEOUT_SECONDS + SLACK_SECONDS, "one attempt per table, not per day"
        assert FAR not in list_partition_days(EVENTS_TABLE)
        reader.rollback()
    assert f"{EVENTS_TABLE}_{FAR:%Y%m%d}" in create_partitions(today=FAR, days=0), "the next run finds no lock"


def test_attached_partition_equals_one_created_by_postgres() -> None:
    """Compare indexes, constraints and storage, including attachment to the parent's indexes."""
    create_partitions(today=FAR, days=0)
    for table in PARTITIONED_TABLES:
        assert describe_table(f"{table}_{FAR:%Y%m%d}") == describe_table(f"{table}_default")


def describe_table(name: str) -> tuple[object, ...]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT i.inhparent::regclass::text, x.indisunique, x.indisprimary FROM pg_index x"
            " LEFT JOIN pg_inherits i ON i.inhrelid = x.indexrelid WHERE x.indrelid = %s::regclass ORDER BY 1",
            [name],
        )
        indexes = cursor.fetchall()
        cursor.execute(
            "SELECT attname, atttypid, attnotnull, attstorage, attcompression, atthasdef FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attname",
            [name],
        )
        columns = cursor.fetchall()
        cursor.execute(
            "SELECT pg_get_constraintdef(oid), coninhcount FROM pg_constraint"
            " WHERE conrelid = %s::regclass AND contype = 'c' ORDER BY 1",
            [name],
        )
        return indexes, columns, cursor.fetchall()
