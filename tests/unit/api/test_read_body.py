"""Requests share the fields of a serializer, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from rest_framework import serializers
from rest_framework.request import Request

from jobs.api.framework.fields import Fields, StrictSerializer, TextField
from jobs.api.framework.views import read_body


class Part(StrictSerializer):
    text = TextField(required=False)
    tags = serializers.ListField(child=TextField(), default=list)


class Whole(StrictSerializer):
    built: ClassVar[list[object]] = []
    part = Part(required=False)
    parts = Part(many=True, default=list)

    def get_fields(self) -> Fields:
        self.built.append(self)
        fields: Fields = super().get_fields()
        return fields


def read(**body: object) -> Any:
    return read_body(Whole, cast("Request", SimpleNamespace(data=body)))


def test_fields_are_built_once() -> None:
    Whole.built.clear()
    read()
    read(part={"text": "a"})
    assert len(Whole.built) <= 1


def test_values_are_those_of_the_request() -> None:
    assert read(part={"text": "a"}, parts=[{"tags": ["x"]}]) == {
        "part": {"text": "a", "tags": []},
        "parts": [{"tags": ["x"]}],
    }
    assert read() == {"parts": []}


def test_defaults_are_new_for_each_request() -> None:
    read()["parts"].append("changed")
    read(part={})["part"]["tags"].append("changed")
    assert read(part={}) == {"part": {"tags": []}, "parts": []}


def test_errors_are_those_of_the_request() -> None:
    for body, field in (({"part": {"text": 1}}, "part"), ({"parts": 1}, "parts")):
        with pytest.raises(serializers.ValidationError) as raised:
            read(**body)
        assert list(cast("dict[str, object]", raised.value.detail)) == [field]
    assert read() == {"parts": []}
