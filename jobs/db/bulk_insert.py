"""Bulk insert: many new rows of one or several models in one statement.

The rows of each model go to Postgres as one JSON text. With the ORM's literal for each value, storing a thousand jobs
takes four times as long; with Python's json, which calls back for each id and time, encoding takes a sixth of a bulk
submission. Connections prepare the statements, whose columns Postgres would otherwise look up for each insert.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter

import orjson
from django.db import connection
from django.db.models import Field, Model

# Keeps a parameter within some megabytes.
_BATCH_ROWS = 1000


def insert_rows(*groups: Sequence[Model]) -> None:
    """Insert rows as the ORM would, each group of one model; they may refer to each other and to rows inserted later.

    Up to a thousand rows of each model go in one statement.
    """
    present = [rows for rows in groups if rows]
    for parts in _iterate_batches(present):
        shapes = [_table_insert(type(rows[0])) for rows in parts]
        values = [[shape.values(row) for row in rows] for shape, rows in zip(shapes, parts, strict=True)]
        with connection.preparing_cursor() as cursor:  # type: ignore[attr-defined]  # of our backend
            cursor.execute(_compose(*(shape.statement for shape in shapes)), [orjson.dumps(v).decode() for v in values])
    for row in (row for rows in present for row in rows):
        # As the ORM does, so that a later save() updates.
        row._state.adding, row._state.db = False, connection.alias


def _iterate_batches(groups: Sequence[Sequence[Model]]) -> Iterator[Sequence[Sequence[Model]]]:
    """Yield the rows of each statement."""
    for start in range(0, max(map(len, groups), default=0), _BATCH_ROWS):
        yield [part for rows in groups if (part := rows[start : start + _BATCH_ROWS])]


@cache
def _compose(*inserts: str) -> str:
    *first, last = inserts
    named = ", ".join(f"i{index} AS ({insert})" for index, insert in enumerate(first))
    return f"WITH {named} {last}" if named else last


class _TableInsert:
    """The insert statement and the fields of a model."""

    def __init__(self, model: type[Model]) -> None:
        fields = model._meta.local_concrete_fields
        self._columns = [str(field.column) for field in fields]
        self._read = attrgetter(*(field.attname for field in fields))
        # Fields that set their own value, such as creation times.
        self._setting = [field for field in fields if type(field).pre_save is not Field.pre_save]
        table = connection.ops.quote_name(model._meta.db_table)
        columns = ", ".join(map(connection.ops.quote_name, self._columns))
        self.statement = (
            f"INSERT INTO {table} ({columns})"  # noqa: S608  names of our own tables
            f" SELECT {columns} FROM json_populate_recordset(NULL::{table}, %s::json)"
        )

    def values(self, row: Model) -> dict[str, object]:
        for field in self._setting:
            field.pre_save(row, add=True)
        return dict(zip(self._columns, self._read(row), strict=True))


_table_insert = cache(_TableInsert)
