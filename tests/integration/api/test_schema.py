"""The OpenAPI schema: valid, and made without a doubt on the generator's side."""

from __future__ import annotations

from pathlib import Path

from django.core.management import call_command
from drf_spectacular.generators import SchemaGenerator


def test_the_schema_is_valid_and_free_of_warnings(tmp_path: Path) -> None:
    file = tmp_path / "schema.yml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(file))
    assert "/api/v1/workers/{worker_id}/claim" in file.read_text()


def test_every_operation_says_what_it_is_refused_with() -> None:
    paths = SchemaGenerator().get_schema(public=True)["paths"]  # type: ignore[no-untyped-call]

    def told(method: str, path: str) -> set[str]:
        responses = paths[f"/api/v1/{path}"][method]["responses"]
        return {status for status, response in responses.items() if "$ref" in response}

    always = {"400", "401", "403", "429", "503"}
    assert told("get", "jobs") == always
    assert told("get", "jobs/{job_id}") == always | {"404"}
    assert told("post", "jobs/bulk") == always | {"409", "413", "415", "422"}
    assert told("patch", "jobs/{job_id}") == always | {"404", "409", "412", "413", "415"}
    assert "304" in paths["/api/v1/jobs/{job_id}"]["get"]["responses"]


def test_what_may_be_null_is_not_said_twice() -> None:
    schemas = SchemaGenerator().get_schema(public=True)["components"]["schemas"]  # type: ignore[no-untyped-call]
    assert "oneOf" not in schemas["ExecutionOutput"]["properties"]["result"]
