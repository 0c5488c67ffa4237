"""The OpenAPI schema: valid, and made without a doubt on the generator's side."""

from __future__ import annotations

from pathlib import Path

from django.core.management import call_command


def test_the_schema_is_valid_and_free_of_warnings(tmp_path: Path) -> None:
    file = tmp_path / "schema.yml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(file))
    assert "/api/v1/workers/{worker_id}/claim" in file.read_text()
