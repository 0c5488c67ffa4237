"""Strict serializer fields: they accept input exactly as written or reject it, and coerce or ignore nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import islice
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError as DjangoValidationError
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty, get_error_detail
from rest_framework.settings import api_settings

from jobs.domain.text_validation import UNREADABLE_NAME_MESSAGE, is_readable_name

_INTEGER_PATTERN = re.compile(r"-?[0-9]{1,20}")

_JSON_TYPE_NAMES = {
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    list: "a list",
    type(None): "null",
}

AnyField = serializers.Field[Any, Any, Any, Any]
Fields = dict[str, AnyField]
Check = Callable[[Any], Any]
MAX_REPORTED_UNKNOWN_FIELDS = 20
MAX_INT32 = 2**31 - 1


class StrictSerializer(serializers.Serializer[object]):
    """Serializer that rejects unknown fields, so that a misspelt field is not mistaken for an omitted one.

    Values and error messages equal DRF's. The fields are inspected once per serializer and not per object: that
    inspection dominated a bulk submission of a thousand jobs.
    """

    def to_internal_value(self, data: object) -> object:
        if not isinstance(data, Mapping):
            given = _JSON_TYPE_NAMES.get(type(data), "that")
            raise serializers.ValidationError(
                {api_settings.NON_FIELD_ERRORS_KEY: [f"Give an object here, with fields: not {given}."]}
            )
        if not data.keys() <= self._inputs.keys():
            # Bounded: each entry costs about a hundred bytes in the response, and a body may have a million fields.
            unknown = list(
                islice((str(name) for name in data if name not in self._inputs), MAX_REPORTED_UNKNOWN_FIELDS)
            )
            known = ", ".join(self._inputs) or "none"
            message = f"There is no such field; known are: {known}."
            raise serializers.ValidationError({name[:100]: [message] for name in unknown})
        values: dict[str, object] = {}
        errors: dict[str, Any] = {}
        for name, (field, source, check) in self._inputs.items():
            given = data.get(name, empty)
            if given is empty and not field.required:
                if field.default is not empty:
                    values[source] = field.get_default()
                continue
            try:
                value = field.run_validation(given)
                values[source] = value if check is None else check(value)
            except serializers.ValidationError as error:
                errors[name] = error.detail
            except DjangoValidationError as error:
                errors[name] = get_error_detail(error)
        if errors:
            raise serializers.ValidationError(errors)
        return values

    def run_validators(self, value: object) -> None:
        if self.validators:
            super().run_validators(value)

    @cached_property
    def _inputs(self) -> dict[str, tuple[AnyField, str, Check | None]]:
        """Map each input name to its field, its attribute and the serializer's `validate_…` method."""
        return {
            name: (field, field.source or name, getattr(self, f"validate_{name}", None))
            for name, field in self.fields.items()
        }


class EmptyInput(StrictSerializer):
    """A request without fields."""


class PartialInput(StrictSerializer):
    """Every field is optional and has no default, so that an edit changes only the fields it names."""

    def get_fields(self) -> Fields:
        fields: Fields = super().get_fields()
        for field in fields.values():
            field.required, field.default = False, empty
        return fields


@extend_schema_field(OpenApiTypes.DATETIME)
class InstantField(serializers.Field[datetime, str, str, datetime]):
    """ISO 8601 with an offset, without which a time is ambiguous."""

    default_error_messages = {
        "invalid": "Write an instant as ISO 8601, such as 2030-01-31T09:00:00Z.",
        "naive": "The instant has no UTC offset; append Z or an offset such as +01:00.",
    }

    def to_internal_value(self, data: str) -> datetime:
        if not isinstance(data, str):
            self.fail("invalid")
        try:
            instant = datetime.fromisoformat(data)
        except ValueError:
            self.fail("invalid")
        if instant.utcoffset() is None:
            self.fail("naive")
        try:
            # Postgres supports offsets of up to sixteen hours only.
            return instant.astimezone(UTC)
        except OverflowError:
            self.fail("invalid")

    def to_representation(self, value: datetime) -> str:
        return value.isoformat().replace("+00:00", "Z")


class TextField(serializers.CharField):
    """Text as sent: rejects numbers and keeps surrounding blanks."""

    def __init__(self, *, max_length: int | None = None, allow_blank: bool = False, **options: object) -> None:
        super().__init__(max_length=max_length, allow_blank=allow_blank, trim_whitespace=False, **options)  # type: ignore[arg-type]
        self._is_plain = type(self) is TextField and "validators" not in options
        self._most = sys.maxsize if max_length is None else max_length

    def run_validation(self, data: Any = empty) -> Any:
        # Fast path: none of DRF's checks can reject such a text.
        if self._is_plain and type(data) is str and 0 < len(data) <= self._most and data.isascii() and "\0" not in data:
            return data
        return super().run_validation(data)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class NumberField(serializers.FloatField):
    """A JSON number; rejects text and booleans."""

    def to_internal_value(self, data: object) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictIntegerField(serializers.IntegerField):
    """A JSON integer; rejects text, fractions and booleans."""

    def to_internal_value(self, data: object) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class QueryIntegerField(serializers.IntegerField):
    """An integer in a query string, as plain ASCII digits; Python's `int` accepts more."""

    def to_internal_value(self, data: object) -> int:
        if not isinstance(data, str) or not _INTEGER_PATTERN.fullmatch(data):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBooleanField(serializers.BooleanField):
    """A JSON boolean; rejects "no" and 1."""

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class StrictUUIDField(serializers.UUIDField):
    """A UUID as text; DRF also accepts integers."""

    def to_internal_value(self, data: object) -> UUID:
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        return super().to_internal_value(data)


class StrictDateField(serializers.DateField):
    """A date in ASCII; Python also accepts digits of other alphabets."""

    def to_internal_value(self, value: object) -> date:
        if not isinstance(value, str) or not value.isascii():
            self.fail("invalid", format="YYYY-MM-DD")
        return super().to_internal_value(value)


class OneOfField(serializers.ChoiceField):
    """A choice whose error message lists the options."""

    def __init__(self, choices: Sequence[Any], **options: Any) -> None:
        super().__init__(choices, **options)
        self.error_messages["invalid_choice"] = f"This is none of {', '.join(map(str, self.choices))}."


class PatternField(serializers.RegexField):
    """Text that matches a pattern; rejects numbers."""

    def __init__(self, pattern: str, *, message: str, **options: Any) -> None:
        super().__init__(pattern, trim_whitespace=False, error_messages={"invalid": message}, **options)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Sha256Field(PatternField):
    def __init__(self, **options: Any) -> None:
        message = "A SHA-256 is 64 digits in lower-case hexadecimal, as sha256sum prints it."
        super().__init__(r"^[0-9a-f]{64}\Z", message=message, **options)


class NameField(TextField):
    """A name for display: readable in a terminal and on a page."""

    default_error_messages = {"unreadable": UNREADABLE_NAME_MESSAGE}

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        if not is_readable_name(name):
            self.fail("unreadable")
        return name


class BoundedListField(serializers.ListField):
    """A list whose length is checked before its elements; DRF validates every element first."""

    def to_internal_value(self, data: object) -> list[object]:
        if isinstance(data, list) and self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        values: list[object] = super().to_internal_value(data)  # type: ignore[arg-type]  # it checks that it is a list
        return values


class BoundedDictField(serializers.DictField):
    """An object whose size is checked before its values."""

    def __init__(self, *, max_length: int, too_many: str, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._max_length = max_length
        self._too_many = too_many

    def to_internal_value(self, data: object) -> dict[str, object]:
        if isinstance(data, Mapping) and len(data) > self._max_length:
            raise serializers.ValidationError(self._too_many)
        values: dict[str, object] = super().to_internal_value(data)  # type: ignore[arg-type]  # it checks that it is one
        return values
