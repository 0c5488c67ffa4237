"""What lists have in common: the parameters of a page and the envelope around its rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

from jobs.api.fields import StrictSerializer
from jobs.api.pagination import DEFAULT_LIMIT, MAX_LIMIT

Output = type[serializers.BaseSerializer[Any]]


class PageQuery(StrictSerializer):
    # Read by the paginator; declared here so that they are known and documented.
    limit = serializers.CharField(required=False, help_text=f"1 to {MAX_LIMIT}; default {DEFAULT_LIMIT}.")
    cursor = serializers.CharField(required=False, help_text="From the `next` of the page before.")


class Ranges(serializers.Serializer[object]):
    """Stands before the others among a query's bases: a range of which nothing can be is a mistake, not a question."""

    ranges: Sequence[tuple[str, str]] = (("from", "to"),)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        for first, last in self.ranges:
            if first in attrs and last in attrs and attrs[first] > attrs[last]:
                raise serializers.ValidationError({first: ["The range ends before it begins; swap its ends."]})
        return attrs


@cache
def page_of(output: Output) -> serializers.Serializer[Any]:
    following = serializers.CharField(allow_null=True, help_text="The path of the next page; null on the last.")
    return _envelope("Page", output, next=following)


def results_of(output: Output, **more: serializers.Field[Any, Any, Any, Any]) -> serializers.Serializer[Any]:
    return _envelope("Results", output, **more)


def _envelope(
    suffix: str, output: Output, **more: serializers.Field[Any, Any, Any, Any]
) -> serializers.Serializer[Any]:
    name = output.__name__.removesuffix("Output") + suffix
    return inline_serializer(name, {"results": output(many=True), **more})
