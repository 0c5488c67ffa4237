"""Fast rendering of list rows: reads each serializer's fields once instead of once per row.

The serializer's fields remain the only description of schema and output. Invariant: the output equals DRF's for rows
that have every declared field.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rest_framework import serializers

ReadValue = Callable[[Any], Any]
FormatValue = Callable[[Any], Any]

if TYPE_CHECKING:
    _Serializer = serializers.Serializer[Any]
else:
    _Serializer = object


class FastSerializerMixin(_Serializer):
    """Mixin for serializers; nested ones get no context."""

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {
            name: None if (value := read(instance)) is None else format_value(value)
            for name, read, format_value in self._columns
        }

    @cached_property
    def _columns(self) -> list[tuple[str, ReadValue, FormatValue]]:
        return [
            (name, getattr(self, read) if isinstance(read, str) else read, format_value)
            for name, read, format_value in _build_columns(type(self))
        ]


@cache
def _build_columns(serializer: type[FastSerializerMixin]) -> list[tuple[str, ReadValue | str, FormatValue]]:
    """Return each field's name, its reader (or the name of the method that reads it) and its formatter."""
    columns: list[tuple[str, ReadValue | str, FormatValue]] = []
    for name, field in serializer().fields.items():
        if isinstance(field, serializers.SerializerMethodField):
            columns.append((name, field.method_name or "", _identity))
        else:
            # DRF's own formatting looks up the current time zone for every value and dominates the cost of a row.
            plain = type(field) is serializers.DateTimeField
            columns.append(
                (name, attrgetter(field.source or name), _format_instant if plain else field.to_representation)
            )
    return columns


def _format_instant(at: datetime) -> str:
    text = at.isoformat()
    return (text if text.endswith("+00:00") else at.astimezone(UTC).isoformat())[:-6] + "Z"


def _identity(value: Any) -> Any:
    return value
