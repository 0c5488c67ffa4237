"""What Postgres wrote between two positions of its write-ahead log, counted by `pg_walinspect`."""

from __future__ import annotations

import time
from collections import Counter

import psycopg

LOOK_SECONDS = 0.05
FLUSH_SECONDS = 10
TOTALS = """
SELECT count(*) FILTER (WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT') AS commits,
       coalesce(sum(record_length - fpi_length), 0)::bigint AS wal_bytes,
       coalesce(sum(fpi_length), 0)::bigint AS page_images
  FROM pg_get_wal_records_info(%(first)s, %(last)s)
"""
# A split of a page inserts one tuple too. The first block of a record is the one that gets the tuple.
TUPLES = """
SELECT CASE WHEN resource_manager = 'Btree' THEN 'index_tuples'
            ELSE 'heap_' || lower(replace(record_type, '+INIT', '')) END AS kind,
       coalesce(c.relname, 'dropped') AS relation, count(*) AS tuples
  FROM pg_get_wal_block_info(%(first)s, %(last)s, false) b
  LEFT JOIN pg_class c ON pg_relation_filenode(c.oid) = b.relfilenode
 WHERE block_id = 0 AND relforknumber = 0
   AND (resource_manager IN ('Heap', 'Heap2')
            AND replace(record_type, '+INIT', '') IN ('INSERT', 'MULTI_INSERT', 'UPDATE', 'HOT_UPDATE', 'DELETE')
        OR resource_manager = 'Btree' AND record_type IN ('INSERT_LEAF', 'INSERT_POST', 'SPLIT_L', 'SPLIT_R'))
 GROUP BY 1, 2
"""


class WriteAheadLog:
    """`pg_walinspect` wants a superuser."""

    def __init__(self, superuser_url: str) -> None:
        self._connection = psycopg.connect(superuser_url, autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")

    def __enter__(self) -> WriteAheadLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def checkpoint(self) -> None:
        """So that the next one, and the page images after it, come no sooner in one measurement than in another."""
        self._connection.execute("CHECKPOINT")

    def position(self) -> str:
        return str(self._ask("SELECT pg_current_wal_insert_lsn()"))

    def count(self, first: str, last: str) -> tuple[Counter[str], Counter[str]]:
        """Commits, bytes and tuples by kind, and tuples by relation."""
        self._wait_for_flush(last)
        bounds = {"first": first, "last": last}
        commits, wal_bytes, page_images = self._connection.execute(TOTALS, bounds).fetchall()[0]
        totals = Counter({"commits": commits, "wal_bytes": wal_bytes, "wal_bytes_of_page_images": page_images})
        by_relation: Counter[str] = Counter()
        for kind, relation, tuples in self._connection.execute(TUPLES, bounds):
            totals[kind] += tuples
            by_relation[relation] += tuples
        return totals, by_relation

    def _wait_for_flush(self, position: str) -> None:
        """Transactions that commit asynchronously are flushed a little later."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while not self._ask("SELECT pg_current_wal_flush_lsn() >= %s", position) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    def _ask(self, query: str, *values: str) -> object:
        row = self._connection.execute(query, values).fetchone()
        assert row is not None
        return row[0]
