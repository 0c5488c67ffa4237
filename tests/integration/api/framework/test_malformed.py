"""Input that violates the published schema is rejected, field by field, and stores nothing.

Made from the schema: an operation without a valid body here fails, and every field of it is covered by itself.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator
from pytest_django import Settings
from rest_framework.test import APIClient

from tests.integration.api.conftest import API
from tests.support.malformed import NOBODY, Document, Wrong, together, wrong_words
from tests.support.one_of_each import OF_A_WORKER, VALID, OneOfEach, refused_fields
from tests.support.stored import stored

DOCUMENT = Document(SchemaGenerator().get_schema(public=True))  # type: ignore[no-untyped-call]
WRITES = {(method, path.removeprefix(f"{API}/")): schema for method, path, schema in DOCUMENT.writes()}
BODIES = {operation: schema for operation, schema in WRITES.items() if schema is not None}

# It releases its connection, and with it the test's transaction.
UNSENT = ("post", f"{OF_A_WORKER}claim")


@pytest.fixture
def world(owner: User, client: APIClient, bucket: None, settings: Settings) -> OneOfEach:
    return OneOfEach(owner, client, settings)


def test_every_operation_with_body_has_valid_example() -> None:
    assert set(VALID) == set(BODIES)


@pytest.mark.parametrize(("method", "path"), BODIES, ids=map(" ".join, BODIES))
def test_input_invalid_by_schema_is_rejected(world: OneOfEach, method: str, path: str) -> None:
    schema, valid = BODIES[method, path], world.valid(method, path)
    if (method, path) != UNSENT:
        with transaction.atomic():
            answer = world.send(method, path, json.dumps(valid))
            assert answer.status_code < 300, answer.content
            transaction.set_rollback(True)

    def refusal(*wrongs: Wrong) -> Any:
        return world.send(method, path, DOCUMENT.written(schema, valid, wrongs))

    before, untold = stored(), list[Wrong]()
    for group in together(DOCUMENT.wrongs(schema)):
        fields = refused_fields(refusal(*group))
        untold += [wrong for wrong in group if not wrong.is_named(fields)]
    # Rules are checked only after the shape is valid, and reported one at a time.
    answers = {str(wrong): (wrong, refusal(wrong)) for wrong in untold}
    wrong_answers = {
        name: (answer.status_code, answer.content[:200])
        for name, (wrong, answer) in answers.items()
        if not wrong.is_named(refused_fields(answer))
    }
    assert wrong_answers == {}
    for body in ("[]", '"x"', "7", "null", f"[{json.dumps(valid)}]"):
        assert refused_fields(world.send(method, path, body)) == ["body"], body
    assert stored() == before


def test_body_is_rejected_where_none_is_expected(client: APIClient, bucket: None) -> None:
    """Validation comes before the lookup of the object, which does not exist."""
    before, wrong = stored(), {}
    for method, path in WRITES.keys() - BODIES.keys():
        address = re.sub(r"\{\w+\}", NOBODY, f"{API}/{path}")
        answer = client.generic(method.upper(), address, '{"colour": "red"}', content_type="application/json")
        if refused_fields(answer) != ["colour"]:
            wrong[method, path] = answer.content
        if NOBODY not in address:
            continue
        answer = client.generic(method.upper(), address, "{}", content_type="application/json")
        if answer.status_code != 404:
            wrong[method, path] = answer.content
    assert wrong == {}
    assert stored() == before


def test_malformed_ids_are_not_found(client: APIClient, bucket: None) -> None:
    wrong = {}
    before = stored()
    for method, path in DOCUMENT.operations():
        for word in ("7", "x" * 36, "%00", "..", f"{NOBODY}%0A", "\u0661" * 36) if "{" in path else ():
            address = re.sub(r"\{\w+\}", quote(word, safe="%"), path)
            answer = client.generic(method.upper(), address, "{}", content_type="application/json")
            if (answer.status_code, answer["Content-Type"]) != (404, "application/problem+json"):
                wrong[method, address] = answer.status_code
    assert wrong == {}
    assert stored() == before


def test_malformed_queries_are_rejected(world: OneOfEach, staff: APIClient) -> None:
    wrong = {}
    since = {"from": "2030-01-01T00:00:00Z"}
    needed = {"logs/search": {"q": "word"}, "audit/firings": since, "audit/attempts": since}
    for path, name, schema in DOCUMENT.parameters():
        route = path.removeprefix(f"{API}/")
        for word in wrong_words(schema):
            answer = staff.get(world.address(route), needed.get(route, {}) | {name: word})
            if name not in refused_fields(answer):
                wrong[route, name, word[:20]] = answer.status_code, answer.content[:200]
    assert wrong == {}
