"""The OpenAPI schema: valid, without generator warnings, and fully described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from jobs.api.openapi.examples import OUTPUTS, REQUESTS

JSON = "application/json"
Schema = dict[str, Any]


class Operation(NamedTuple):
    method: str
    path: str
    operation: Schema

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@pytest.fixture(scope="module")
def schema() -> Schema:
    generated: Schema = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return generated


@pytest.fixture(scope="module")
def operations(schema: Schema) -> list[Operation]:
    return [
        Operation(method, path.removeprefix("/api/v1/"), operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]


def find_operation(operations: list[Operation], method: str, path: str) -> Schema:
    return next(each.operation for each in operations if (each.method, each.path) == (method, path))


def test_schema_is_valid_and_free_of_warnings(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", "--file", str(file))
    assert "/api/v1/workers/{worker_id}/claim" in file.read_text()


def test_schema_introduces_api(schema: Schema) -> None:
    assert re.fullmatch(r"3\.1\.\d+", schema["openapi"])
    info = schema["info"]
    assert (info["title"], info["license"]["identifier"]) == ("Punctual", "Apache-2.0")
    assert info["version"]
    for word in ("Bearer", "application/problem+json", "`next`", "Idempotency-Key", "](schema)"):
        assert word in info["description"]


def test_every_operation_lists_error_responses(schema: Schema) -> None:
    paths = schema["paths"]

    def find_error_statuses(method: str, path: str) -> set[str]:
        responses = paths[f"/api/v1/{path}"][method]["responses"]
        return {status for status, response in responses.items() if "$ref" in response}

    always = {"400", "401", "403", "429", "503"}
    assert find_error_statuses("get", "jobs") == always
    assert find_error_statuses("get", "jobs/{job_id}") == always | {"404"}
    assert find_error_statuses("get", "audit/firings") == always | {"404"}
    assert find_error_statuses("post", "jobs/bulk") == always | {"409", "413", "415", "422"}
    assert find_error_statuses("patch", "jobs/{job_id}") == always | {"404", "409", "412", "413", "415"}
    assert "304" in paths["/api/v1/jobs/{job_id}"]["get"]["responses"]


def test_every_operation_has_summary_tag_and_scope(schema: Schema, operations: list[Operation]) -> None:
    areas = [area["name"] for area in schema["tags"]]
    assert all(area["description"] for area in schema["tags"])
    assert {area for each in operations for area in each.operation["tags"]} == set(areas)
    summaries = [str(each.operation.get("summary", "")) for each in operations]
    assert [str(each) for each, summary in zip(operations, summaries, strict=True) if not summary] == []
    assert sorted({summary for summary in summaries if summaries.count(summary) > 1}) == []
    needs = re.compile(r"(Needs a token of scope `\w+`( or `\w+`)*\.|Public: needs no token\.)\Z")
    assert [str(each) for each in operations if not needs.search(each.operation["description"])] == []


def test_documented_scopes_are_the_enforced_ones(operations: list[Operation]) -> None:
    def describe_scopes(method: str, path: str) -> tuple[str, object]:
        operation = find_operation(operations, method, path)
        return operation["description"].splitlines()[-1], operation["security"]

    session: Schema = {"cookieAuth": []}
    assert describe_scopes("get", "jobs") == (
        "Needs a token of scope `read`.",
        [{"bearerToken": ["read"]}, session],
    )
    assert describe_scopes("post", "jobs") == (
        "Needs a token of scope `submit`.",
        [{"bearerToken": ["submit"]}, session],
    )
    assert describe_scopes("delete", "tokens/self") == (
        "Needs a token of scope `read` or `worker`.",
        [{"bearerToken": ["read"]}, {"bearerToken": ["worker"]}, session],
    )
    assert describe_scopes("get", "workers/terms") == (
        "Needs a token of scope `worker`.",
        [{"bearerToken": ["worker"]}],
    )
    assert describe_scopes("post", "login") == ("Public: needs no token.", [])
    assert find_operation(operations, "get", "workers/terms")["tags"] == ["Worker protocol"]
    assert find_operation(operations, "post", "workers/{worker_id}/drain")["tags"] == ["Workers and queues"]


def test_every_parameter_is_described(operations: list[Operation]) -> None:
    silent = [
        f"{each}: {parameter['name']}"
        for each in operations
        for parameter in each.operation.get("parameters", [])
        if not parameter.get("description")
    ]
    assert silent == []


def test_internal_docstrings_are_not_published(schema: Schema) -> None:
    find_error_statuses = str(schema)
    for word in ("DRF", "view's bases", "query's bases", "Mixin", "misspelt", "no default, so that an edit"):
        assert word not in find_error_statuses


def test_nullable_any_value_is_collapsed(schema: Schema) -> None:
    assert "oneOf" not in schema["components"]["schemas"]["ExecutionOutput"]["properties"]["result"]


def test_inputs_forbid_unknown_fields(schema: Schema) -> None:
    schemas = schema["components"]["schemas"]
    assert schemas["ScheduleInput"]["additionalProperties"] is False
    assert schemas["PatchedJobEditInput"]["additionalProperties"] is False


def media_of(operations: list[Operation]) -> Iterator[tuple[str, Schema]]:
    """Yield every JSON request body and every JSON body of a successful response."""
    for each in operations:
        if "requestBody" in each.operation:
            yield f"{each}: request", each.operation["requestBody"]["content"][JSON]
        for status, response in each.operation["responses"].items():
            if status.startswith("2") and JSON in response.get("content", {}):
                yield f"{each}: {status}", response["content"][JSON]


def examples_of(media: Schema) -> list[object]:
    if "example" in media:
        return [media["example"]]
    return [named["value"] for named in media.get("examples", {}).values()]


def test_every_json_body_has_an_example(operations: list[Operation]) -> None:
    media = dict(media_of(operations))
    assert len(media) > 80
    assert [place for place, each in media.items() if not examples_of(each)] == []


def test_every_example_matches_its_schema(schema: Schema, operations: list[Operation]) -> None:
    """Including error responses; and no example has fields unknown to the schema."""
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


def test_every_example_is_used(schema: Schema) -> None:
    """An unused example describes something that no longer exists."""
    find_error_statuses = str(schema["paths"])
    values = [*OUTPUTS.values(), *(value for named in REQUESTS.values() for value in named.values())]
    assert [value for value in values if str(value) not in find_error_statuses] == []
