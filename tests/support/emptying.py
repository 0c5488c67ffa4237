"""Empties the database after a test that committed, as Django's flush would, and in a hundredth of its time.

A flush truncates all tables, which makes new files for hundreds of indexes, and then writes content types and
permissions anew. Here these two stay as the migrations left them, and of the rest only what has rows is deleted.
"""

from __future__ import annotations

from django.db import connection, transaction
from django.test import TransactionTestCase

KEPT = ("django_migrations", "django_content_type", "auth_permission")
# What was deleted keeps its place until somebody cleans up, and is looked at by every query of a later test.
LARGEST_BYTES = 256 * 1024
# Partitions by themselves; and whether a trigger guards its rows, which a truncation does not ask.
USED = """
SELECT oid::regclass::text, pg_relation_size(oid),
       EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid AND NOT tgisinternal AND tgtype & 8 > 0)
  FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0 AND relname <> ALL(%s)
"""

_flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]


def empty(test: TransactionTestCase) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(USED, [list(KEPT)])
        used = cursor.fetchall()
        small = all(size <= LARGEST_BYTES for _, size, _ in used)
        if small and used:
            cursor.execute(
                "; ".join(f"{'TRUNCATE' if guarded else 'DELETE FROM'} {table}" for table, _, guarded in used)
            )
    if not small:
        _flush(test)
