"""Django's DATABASES settings from DATABASE_URL."""

from __future__ import annotations

import pytest

from scheduler_project.settings.database import build_database_settings, parse_database_url


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgres://u:p@db:5433/name", "db", 5433),
        ("postgres://u:p@%2Frun%2Fpostgresql/name", "/run/postgresql", ""),
        ("postgres://u:p@db1,db2/name", "db1,db2", "5432,5432"),
        ("postgres://u:p@db1:5433,db2/name", "db1,db2", "5433,5432"),
        ("postgres://u:p@[fd00::1]:5433,[fd00::2]/name", "fd00::1,fd00::2", "5433,5432"),
    ],
)
def test_hosts_and_ports_are_parsed(url: str, host: str, port: object) -> None:
    parsed = parse_database_url(url)
    assert (parsed["HOST"], parsed["PORT"]) == (host, port)
    assert (parsed["USER"], parsed["PASSWORD"], parsed["NAME"]) == ("u", "p", "name")


def options_of(url: str) -> dict[str, object]:
    options: dict[str, object] = build_database_settings(url, pool_size=1, statement_seconds=7)["OPTIONS"]
    return options


def test_several_hosts_require_a_writable_server() -> None:
    assert options_of("postgres://u:p@a,b/name")["target_session_attrs"] == "read-write"
    assert options_of("postgres://u:p@/name?host=a,b")["target_session_attrs"] == "read-write"
    assert options_of("postgres://u:p@a,b/name?target_session_attrs=any")["target_session_attrs"] == "any"
    assert "target_session_attrs" not in options_of("postgres://u:p@a/name")


def test_options_of_the_url_override_defaults() -> None:
    options = str(options_of("postgres://u:p@a/name?options=-c%20statement_timeout%3D1s")["options"])
    assert options.startswith("-c statement_timeout=7000 ")
    assert options.endswith(" -c statement_timeout=1s")
