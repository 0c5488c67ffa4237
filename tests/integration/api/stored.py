"""All that the control plane keeps, as values that can be compared: to show that a request has left nothing."""

from __future__ import annotations

from django.db import connection

from jobs import storage


def stored() -> dict[str, tuple[int, int]]:
    """The rows, and how many objects there are."""
    return rows() | {"objects": (sum(len(page) for page in storage.list_objects("", before="~")), 0)}


def rows() -> dict[str, tuple[int, int]]:
    """How many rows each table has, and what they add up to."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relname LIKE 'jobs@_%' ESCAPE '@' AND relkind IN ('r', 'p')"
            " AND NOT relispartition"
        )
        tables = [name for (name,) in cursor.fetchall()]
        parts = [f"SELECT '{name}', count(*), coalesce(sum(hashtext(t::text)), 0) FROM {name} t" for name in tables]  # noqa: S608
        cursor.execute(" UNION ALL ".join(parts))
        return {name: (count, added) for name, count, added in cursor.fetchall()}
