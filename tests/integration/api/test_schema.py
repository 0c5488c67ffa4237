"""The OpenAPI schema: valid, made without a doubt on the generator's side, and with something to say of everything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from jobs.api.examples import OUTPUTS, REQUESTS

JSON = "application/json"
Schema = dict[str, Any]


class Operation(NamedTuple):
    method: str
    path: str
    said: Schema

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@pytest.fixture(scope="module")
def schema() -> Schema:
    made: Schema = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return made


@pytest.fixture(scope="module")
def operations(schema: Schema) -> list[Operation]:
    return [
        Operation(method, path.removeprefix("/api/v1/"), said)
        for path, methods in schema["paths"].items()
        for method, said in methods.items()
    ]


def said_of(operations: list[Operation], method: str, path: str) -> Schema:
    return next(each.said for each in operations if (each.method, each.path) == (method, path))


def test_the_schema_is_valid_and_free_of_warnings(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", "--file", str(file))
    assert "/api/v1/workers/{worker_id}/claim" in file.read_text()


def test_the_schema_introduces_the_api(schema: Schema) -> None:
    assert re.fullmatch(r"3\.1\.\d+", schema["openapi"])
    info = schema["info"]
    assert (info["title"], info["license"]["identifier"]) == ("Punctual", "Apache-2.0")
    assert info["version"]
    for word in ("Bearer", "application/problem+json", "`next`", "Idempotency-Key", "](schema)"):
        assert word in info["description"]


def test_every_operation_says_what_it_is_refused_with(schema: Schema) -> None:
    paths = schema["paths"]

    def told(method: str, path: str) -> set[str]:
        responses = paths[f"/api/v1/{path}"][method]["responses"]
        return {status for status, response in responses.items() if "$ref" in response}

    always = {"400", "401", "403", "429", "503"}
    assert told("get", "jobs") == always
    assert told("get", "jobs/{job_id}") == always | {"404"}
    assert told("get", "audit/firings") == always | {"404"}
    assert told("post", "jobs/bulk") == always | {"409", "413", "415", "422"}
    assert told("patch", "jobs/{job_id}") == always | {"404", "409", "412", "413", "415"}
    assert "304" in paths["/api/v1/jobs/{job_id}"]["get"]["responses"]


def test_every_operation_has_a_summary_an_area_and_a_scope(schema: Schema, operations: list[Operation]) -> None:
    areas = [area["name"] for area in schema["tags"]]
    assert all(area["description"] for area in schema["tags"])
    assert {area for each in operations for area in each.said["tags"]} == set(areas)
    summaries = [str(each.said.get("summary", "")) for each in operations]
    assert [str(each) for each, summary in zip(operations, summaries, strict=True) if not summary] == []
    assert sorted({summary for summary in summaries if summaries.count(summary) > 1}) == []
    needs = re.compile(r"(Needs a token of scope `\w+`( or `\w+`)*\.|Open: needs no token\.)\Z")
    assert [str(each) for each in operations if not needs.search(each.said["description"])] == []


def test_scopes_are_those_of_the_table_that_requests_are_refused_by(operations: list[Operation]) -> None:
    def told(method: str, path: str) -> tuple[str, object]:
        said = said_of(operations, method, path)
        return said["description"].splitlines()[-1], said["security"]

    session: Schema = {"cookieAuth": []}
    assert told("get", "jobs") == ("Needs a token of scope `read`.", [{"bearerToken": ["read"]}, session])
    assert told("post", "jobs") == ("Needs a token of scope `submit`.", [{"bearerToken": ["submit"]}, session])
    assert told("delete", "tokens/self") == (
        "Needs a token of scope `read` or `worker`.",
        [{"bearerToken": ["read"]}, {"bearerToken": ["worker"]}, session],
    )
    assert told("get", "workers/terms") == ("Needs a token of scope `worker`.", [{"bearerToken": ["worker"]}])
    assert told("post", "login") == ("Open: needs no token.", [])
    assert said_of(operations, "get", "workers/terms")["tags"] == ["Worker protocol"]
    assert said_of(operations, "post", "workers/{worker_id}/drain")["tags"] == ["Workers and queues"]


def test_every_parameter_is_described(operations: list[Operation]) -> None:
    silent = [
        f"{each}: {parameter['name']}"
        for each in operations
        for parameter in each.said.get("parameters", [])
        if not parameter.get("description")
    ]
    assert silent == []


def test_words_for_readers_of_the_code_are_not_told_to_users(schema: Schema) -> None:
    told = str(schema)
    for word in ("DRF", "view's bases", "misspelt must not be taken", "A default would overwrite"):
        assert word not in told


def test_what_may_be_null_is_not_said_twice(schema: Schema) -> None:
    assert "oneOf" not in schema["components"]["schemas"]["ExecutionOutput"]["properties"]["result"]


def test_input_refuses_fields_that_are_not_known(schema: Schema) -> None:
    schemas = schema["components"]["schemas"]
    assert schemas["ScheduleInput"]["additionalProperties"] is False
    assert schemas["PatchedJobEditInput"]["additionalProperties"] is False


def media_of(operations: list[Operation]) -> Iterator[tuple[str, Schema]]:
    """Every JSON that is sent, and every JSON that a request which is taken is answered with."""
    for each in operations:
        if "requestBody" in each.said:
            yield f"{each}: request", each.said["requestBody"]["content"][JSON]
        for status, response in each.said["responses"].items():
            if status.startswith("2") and JSON in response.get("content", {}):
                yield f"{each}: {status}", response["content"][JSON]


def examples_of(media: Schema) -> list[object]:
    if "example" in media:
        return [media["example"]]
    return [named["value"] for named in media.get("examples", {}).values()]


def test_everything_that_is_sent_or_answered_has_an_example(operations: list[Operation]) -> None:
    media = dict(media_of(operations))
    assert len(media) > 80
    assert [place for place, each in media.items() if not examples_of(each)] == []


def test_every_example_is_one_of_what_it_stands_at(schema: Schema, operations: list[Operation]) -> None:
    """Also those of refusals; and nothing in them is unknown to the schema."""
    closed = {
        name: {"additionalProperties": False, **each} if "properties" in each else each
        for name, each in schema["components"]["schemas"].items()
    }
    refusals = {
        name: each["content"]["application/problem+json"] for name, each in schema["components"]["responses"].items()
    }
    for place, media in [*media_of(operations), *refusals.items()]:
        validator = Draft202012Validator(
            {**media["schema"], "components": {"schemas": closed}}, format_checker=Draft202012Validator.FORMAT_CHECKER
        )
        for example in examples_of(media):
            wrong = [f"{place}: {error.json_path}: {error.message}" for error in validator.iter_errors(example)]
            assert wrong == []


def test_every_example_is_shown(schema: Schema) -> None:
    """Or it is of something that is no longer there."""
    told = str(schema["paths"])
    values = [*OUTPUTS.values(), *(value for named in REQUESTS.values() for value in named.values())]
    assert [value for value in values if str(value) not in told] == []
