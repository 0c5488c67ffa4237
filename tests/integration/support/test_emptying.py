"""What a test has committed is gone after it, also what a trigger guards and what lies in partitions."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import TransactionTestCase
from psycopg import sql

from jobs.models import AuditEntry, Execution, LogChunk, Via
from tests.support import emptying
from tests.support.log_writing import running, write

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("largest", [emptying.LARGEST_BYTES, 0], ids=["deleted", "flushed"])
def test_emptying_leaves_only_kept_tables(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    permissions = set(Permission.objects.values_list("codename", flat=True))
    write(running(), "words")
    AuditEntry.objects.create(id=uuid4(), at=datetime.now(UTC), via=Via.API, action="test")
    assert all(model.objects.exists() for model in (Execution, LogChunk, AuditEntry))
    monkeypatch.setattr(emptying, "LARGEST_BYTES", largest)

    emptying.empty(TransactionTestCase("__init__"))

    tables = set(connection.introspection.table_names()) - set(emptying.KEPT)
    assert [table for table in sorted(tables) if is_used(table)] == []
    assert set(Permission.objects.values_list("codename", flat=True)) == permissions != set()


def is_used(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table)))
        return bool(cursor.fetchone()[0])
