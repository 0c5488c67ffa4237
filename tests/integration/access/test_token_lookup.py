"""A token is found with every field of the token and its owner."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.access.tokens import find_token, generate_secret, record_use, store_token
from jobs.models import ApiToken
from tests.support.factories import make_user

pytestmark = pytest.mark.django_db


def test_lookup_loads_the_token_and_its_owner_in_one_statement() -> None:
    secret = generate_secret()
    record_use(store_token(owner=make_user(), name="t", secret=secret, secrets=["one", "two"]).id)
    with CaptureQueriesContext(connection) as queries:
        found = find_token(secret)
        read = [
            {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
            for row in (found, found.owner)
        ]
    assert len(queries) == 1
    stored = ApiToken.objects.select_related("owner").get()
    assert read == [
        {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
        for row in (stored, stored.owner)
    ]
