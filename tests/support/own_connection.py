"""A connection to the database under test that is nobody else's: outside of everything that Django and its pool do."""

from __future__ import annotations

import psycopg
from django.conf import settings
from django.db import connection


def own_connection(dbname: str | None = None, *, autocommit: bool = False) -> psycopg.Connection:
    """To the database under test, or to another of its server."""
    database = settings.DATABASES["default"]
    return psycopg.connect(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        password=database["PASSWORD"],
        dbname=dbname or connection.settings_dict["NAME"],
        autocommit=autocommit,
    )
