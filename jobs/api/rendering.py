"""Rows of lists at the price of plain Python: what DRF finds out of every row anew is found out once for a serializer.

Its fields remain the only description, of the schema and of what is shown. Invariant: what is shown is what DRF itself
would show of rows that have all that is described.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rest_framework import serializers

Read = Callable[[Any], Any]
Show = Callable[[Any], Any]

if TYPE_CHECKING:
    _Serializer = serializers.Serializer[Any]
else:
    _Serializer = object


class QuickRows(_Serializer):
    """To be mixed into a serializer; inside of another one it has no context."""

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {name: None if (value := read(instance)) is None else show(value) for name, read, show in self._columns}

    @cached_property
    def _columns(self) -> list[tuple[str, Read, Show]]:
        return [
            (name, getattr(self, read) if isinstance(read, str) else read, show)
            for name, read, show in _columns_of(type(self))
        ]


@cache
def _columns_of(serializer: type[QuickRows]) -> list[tuple[str, Read | str, Show]]:
    """The name of each field, how it is read, or the method that does, and how it is shown."""
    columns: list[tuple[str, Read | str, Show]] = []
    for name, field in serializer().fields.items():
        if isinstance(field, serializers.SerializerMethodField):
            columns.append((name, field.method_name or "", _same))
        else:
            # A time costs DRF more than all else together: it asks for the current time zone each time.
            plain = type(field) is serializers.DateTimeField
            columns.append((name, attrgetter(field.source or name), _instant if plain else field.to_representation))
    return columns


def _instant(at: datetime) -> str:
    text = at.isoformat()
    return (text if text.endswith("+00:00") else at.astimezone(UTC).isoformat())[:-6] + "Z"


def _same(value: Any) -> Any:
    return value
