"""Fields and serializers that take input as written or refuse it: nothing is guessed, nothing is ignored."""

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

from jobs.storable import UNREADABLE_NAME, is_readable_name

_NUMERAL = re.compile(r"-?[0-9]{1,20}")

# As JSON calls them.
_KINDS = {str: "a text", int: "a number", float: "a number", bool: "a truth value", list: "a list", type(None): "null"}

AnyField = serializers.Field[Any, Any, Any, Any]
Check = Callable[[Any], Any]
MAX_UNKNOWN_TOLD = 20


class StrictSerializer(serializers.Serializer[object]):
    """A field that is misspelt must not be taken for one that was left out.

    Reads values as DRF does, and says the same of those that are wrong; what DRF finds out of each object anew is found
    out once: of a thousand jobs that took most of the time.
    """

    def to_internal_value(self, data: object) -> object:
        if not isinstance(data, Mapping):
            given = _KINDS.get(type(data), "that")
            raise serializers.ValidationError(
                {api_settings.NON_FIELD_ERRORS_KEY: [f"Give an object here, with fields: not {given}."]}
            )
        if not data.keys() <= self._inputs.keys():
            # Not all of them: each is told in some hundred bytes, and a body may have a million.
            unknown = list(islice((str(name) for name in data if name not in self._inputs), MAX_UNKNOWN_TOLD))
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
        """Every field, the name of its value, and the serializer's own check of it."""
        return {
            name: (field, field.source or name, getattr(self, f"validate_{name}", None))
            for name, field in self.fields.items()
        }


@extend_schema_field(OpenApiTypes.DATETIME)
class InstantField(serializers.Field[datetime, str, str, datetime]):
    """ISO 8601 with an offset: a time without one would mean another moment on another machine."""

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
            # Postgres knows no offset beyond sixteen hours.
            return instant.astimezone(UTC)
        except OverflowError:
            self.fail("invalid")

    def to_representation(self, value: datetime) -> str:
        return value.isoformat().replace("+00:00", "Z")


class TextField(serializers.CharField):
    """Text as it was sent: a number is not text, and blanks at the ends may matter."""

    def __init__(self, *, max_length: int | None = None, allow_blank: bool = False, **options: object) -> None:
        super().__init__(max_length=max_length, allow_blank=allow_blank, trim_whitespace=False, **options)  # type: ignore[arg-type]
        self._is_plain = type(self) is TextField and "validators" not in options
        self._most = sys.maxsize if max_length is None else max_length

    def run_validation(self, data: Any = empty) -> Any:
        # What most texts are costs least: nothing that a check of DRF's would refuse.
        if self._is_plain and type(data) is str and 0 < len(data) <= self._most and data.isascii() and "\0" not in data:
            return data
        return super().run_validation(data)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class NumberField(serializers.FloatField):
    """A JSON number: neither text nor a truth value."""

    def to_internal_value(self, data: object) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return super().to_internal_value(data)


class WholeNumberField(serializers.IntegerField):
    def to_internal_value(self, data: object) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class NumeralField(serializers.IntegerField):
    """A whole number in an address, where all is text: its digits, and no other way that Python would read one."""

    def to_internal_value(self, data: object) -> int:
        if not isinstance(data, str) or not _NUMERAL.fullmatch(data):
            self.fail("invalid")
        return super().to_internal_value(data)


class TruthField(serializers.BooleanField):
    """A JSON truth value: "no" is a text like any other, and 1 a number."""

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class IdField(serializers.UUIDField):
    """Written out: DRF would make an id of any number."""

    def to_internal_value(self, data: object) -> UUID:
        if not isinstance(data, str):
            self.fail("invalid", value=data)
        return super().to_internal_value(data)


class DayField(serializers.DateField):
    """A date in ASCII: the digits of other alphabets are digits to Python."""

    def to_internal_value(self, value: object) -> date:
        if not isinstance(value, str) or not value.isascii():
            self.fail("invalid", format="YYYY-MM-DD")
        return super().to_internal_value(value)


class OneOfField(serializers.ChoiceField):
    """A choice that says what there is to choose from."""

    def __init__(self, choices: Sequence[Any], **options: Any) -> None:
        super().__init__(choices, **options)
        self.error_messages["invalid_choice"] = f"This is none of {', '.join(map(str, self.choices))}."


class PatternField(serializers.RegexField):
    """Text of this form: a number has none, though its digits might."""

    def __init__(self, pattern: str, *, sentence: str, **options: Any) -> None:
        super().__init__(pattern, trim_whitespace=False, error_messages={"invalid": sentence}, **options)

    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Sha256Field(PatternField):
    def __init__(self, **options: Any) -> None:
        sentence = "A SHA-256 is 64 digits in lower-case hexadecimal, as sha256sum prints it."
        super().__init__(r"^[0-9a-f]{64}\Z", sentence=sentence, **options)


class NameField(TextField):
    """What people call a thing, in a terminal and on a page among other things."""

    default_error_messages = {"unreadable": UNREADABLE_NAME}

    def to_internal_value(self, data: object) -> str:
        name = super().to_internal_value(data)
        if not is_readable_name(name):
            self.fail("unreadable")
        return name


class BoundedListField(serializers.ListField):
    """Counted before it is read: DRF looks at every element of a list first, however many it allows."""

    def to_internal_value(self, data: object) -> list[object]:
        if isinstance(data, list) and self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        values: list[object] = super().to_internal_value(data)  # type: ignore[arg-type]  # it checks that it is a list
        return values


class BoundedDictField(serializers.DictField):
    """The same of what is named."""

    def __init__(self, *, max_length: int, too_many: str, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._max_length = max_length
        self._too_many = too_many

    def to_internal_value(self, data: object) -> dict[str, object]:
        if isinstance(data, Mapping) and len(data) > self._max_length:
            raise serializers.ValidationError(self._too_many)
        values: dict[str, object] = super().to_internal_value(data)  # type: ignore[arg-type]  # it checks that it is one
        return values
