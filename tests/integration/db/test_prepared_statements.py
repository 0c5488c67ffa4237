"""Frequent statements are planned once per connection."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from jobs.db import sql

pytestmark = pytest.mark.django_db
PARAMETER = re.compile(r"%\((\w+)\)s")


def to_prepared_form(statement: str) -> str:
    """Number the parameters as psycopg does, in order of their first use."""
    numbers = {name: n for n, name in enumerate(dict.fromkeys(PARAMETER.findall(statement)), 1)}
    return PARAMETER.sub(lambda match: f"${numbers[match[1]]}", statement).replace("%%", "%")


@pytest.mark.parametrize("name", sorted(sql._all_statements()))
def test_statement_can_be_prepared_without_types_of_its_parameters(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PREPARE checked AS {to_prepared_form(sql.statement(name))}")
        cursor.execute("DEALLOCATE checked")
