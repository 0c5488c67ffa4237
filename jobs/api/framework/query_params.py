"""Query parameters and response envelopes shared by all lists."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

from jobs.api.framework.fields import AnyField, StrictSerializer
from jobs.api.framework.pagination import DEFAULT_LIMIT, MAX_LIMIT

OutputSerializer = type[serializers.BaseSerializer[Any]]


class PageQuery(StrictSerializer):
    # Read by the paginator; declared here to be accepted and documented.
    limit = serializers.CharField(
        required=False, help_text=f"Maximum number of results, 1 to {MAX_LIMIT}. Default: {DEFAULT_LIMIT}."
    )
    cursor = serializers.CharField(required=False, help_text="Cursor from the `next` of the previous page.")


class RangeValidationMixin(serializers.Serializer[object]):
    """Reject ranges that end before they begin; comes first among a query's bases."""

    ranges: Sequence[tuple[str, str]] = (("from", "to"),)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        for first, last in self.ranges:
            if first in attrs and last in attrs and attrs[first] > attrs[last]:
                raise serializers.ValidationError({first: ["The range ends before it begins; swap its ends."]})
        return attrs


@cache
def build_page_serializer(output: OutputSerializer) -> serializers.Serializer[Any]:
    following = serializers.CharField(allow_null=True, help_text="Path of the next page; null on the last one.")
    return _build_envelope("Page", output, next=following)


def build_results_serializer(output: OutputSerializer, **more: AnyField) -> serializers.Serializer[Any]:
    return _build_envelope("Results", output, **more)


def _build_envelope(suffix: str, output: OutputSerializer, **more: AnyField) -> serializers.Serializer[Any]:
    name = output.__name__.removesuffix("Output") + suffix
    return inline_serializer(name, {"results": output(many=True), **more})
