"""Settings that production refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from scheduler_project.checks import find_insecure_settings
from scheduler_project.settings.environment import DEVELOPMENT_SECRET_KEY, Environment, read_environment

URL = "postgres://u:p@{}/name"
SAFE: dict[str, Any] = {
    "mode": "production",
    "secret_key": SecretStr("k" * 50),
    "debug": False,
    "allowed_hosts": ("punctual.example.org",),
    "flower_basic_auth": SecretStr("user:password"),
    "flower_auth_provider": None,
    "database_url": SecretStr(URL.format("db.example") + "?sslmode=verify-full"),
    "redis_url": SecretStr("rediss://redis.example:6379/0"),
    "s3_endpoint_url": "https://s3.example",
    "allow_plaintext": (),
}


def environment(**changes: Any) -> Environment:
    return read_environment().model_copy(update=SAFE | changes)


def list_insecure(**changes: Any) -> list[str]:
    return [insecurity.id for insecurity in find_insecure_settings(environment(**changes))]


def test_safe_settings_pass() -> None:
    assert list_insecure() == []
    assert list_insecure(flower_basic_auth=None, flower_auth_provider="flower.views.auth.GithubLoginHandler") == []


@pytest.mark.parametrize(
    ("changes", "id_"),
    [
        ({"secret_key": SecretStr(DEVELOPMENT_SECRET_KEY)}, "punctual.E001"),
        ({"secret_key": SecretStr("k" * 49)}, "punctual.E001"),
        ({"debug": True}, "punctual.E002"),
        ({"allowed_hosts": ()}, "punctual.E003"),
        ({"allowed_hosts": ("a.example.org", "*")}, "punctual.E003"),
        ({"flower_basic_auth": None}, "punctual.E004"),
    ],
)
def test_insecure_setting_is_refused_in_production_only(changes: dict[str, Any], id_: str) -> None:
    assert list_insecure(**changes) == [id_]
    assert list_insecure(**changes, mode="development") == []


@pytest.mark.parametrize(
    ("changes", "link"),
    [
        ({"database_url": SecretStr(URL.format("db.example"))}, "postgres"),
        ({"database_url": SecretStr(URL.format("db.example") + "?sslmode=prefer")}, "postgres"),
        ({"database_url": SecretStr(URL.format("10.0.0.5:5433"))}, "postgres"),
        ({"database_url": SecretStr(URL.format("127.0.0.1,db.example"))}, "postgres"),
        ({"database_url": SecretStr(URL.format("") + "?host=db.example")}, "postgres"),
        ({"database_url": SecretStr(URL.format("localhost") + "?hostaddr=10.0.0.5")}, "postgres"),
        ({"database_url": SecretStr(URL.format("localhost,localhost") + "?hostaddr=127.0.0.1,10.0.0.5")}, "postgres"),
        ({"database_url": SecretStr(URL.format("localhost") + "?service=production")}, "postgres"),
        ({"redis_url": SecretStr("redis://:p@redis:6379/0")}, "redis"),
        ({"s3_endpoint_url": "http://minio:9000"}, "s3"),
        ({"s3_public_endpoint_url": "http://s3.example"}, "s3"),
    ],
)
def test_unencrypted_remote_link_is_refused_unless_allowed(changes: dict[str, Any], link: str) -> None:
    assert list_insecure(**changes) == ["punctual.E005"]
    assert list_insecure(**changes, allow_plaintext=(link,)) == []
    others = tuple({"postgres", "redis", "s3", "http"} - {link})
    assert list_insecure(**changes, allow_plaintext=others) == ["punctual.E005"]


@pytest.mark.parametrize(
    "changes",
    [
        {"database_url": SecretStr(URL.format("127.0.0.1"))},
        {"database_url": SecretStr(URL.format("localhost:5433"))},
        {"database_url": SecretStr(URL.format("[::1]"))},
        {"database_url": SecretStr(URL.format("%2Frun%2Fpostgresql"))},
        {"database_url": SecretStr(URL.format(""))},
        {"database_url": SecretStr(URL.format("db.example") + "?sslmode=require")},
        {"database_url": SecretStr(URL.format("db.example") + "?hostaddr=127.0.0.1")},
        {"database_url": SecretStr(URL.format("") + "?service=production&sslmode=verify-full")},
        {"redis_url": SecretStr("redis://127.0.0.2:6379/0")},
        {"redis_url": SecretStr("redis://")},
        {"redis_url": SecretStr("unix:///run/redis.sock")},
        {"s3_endpoint_url": "http://localhost:9000"},
        {"s3_endpoint_url": None},
    ],
)
def test_local_and_encrypted_links_pass(changes: dict[str, Any]) -> None:
    assert list_insecure(**changes) == []


LOCAL = SecretStr(URL.format("localhost"))


@pytest.mark.parametrize(
    ("variables", "changes", "link"),
    [
        ({"PGHOSTADDR": "10.0.0.5"}, {"database_url": LOCAL}, "postgres"),
        ({"PGHOST": "db.example"}, {"database_url": SecretStr(URL.format(""))}, "postgres"),
        ({"PGSERVICE": "production"}, {"database_url": LOCAL}, "postgres"),
        # The service file takes precedence over the environment.
        ({"PGSERVICE": "production", "PGSSLMODE": "require"}, {"database_url": LOCAL}, "postgres"),
        ({"AWS_ENDPOINT_URL": "http://minio:9000"}, {"s3_endpoint_url": None}, "s3"),
        ({"AWS_ENDPOINT_URL_S3": "http://minio:9000"}, {"s3_endpoint_url": None}, "s3"),
    ],
)
def test_unencrypted_library_settings_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], changes: dict[str, Any], link: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert list_insecure(**changes) == ["punctual.E005"]
    assert list_insecure(**changes, allow_plaintext=(link,)) == []


def test_settings_that_libraries_ignore_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOSTADDR", "10.0.0.5")
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    assert list_insecure(database_url=LOCAL, s3_endpoint_url="https://s3.example") == []
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example")
    assert list_insecure(database_url=LOCAL, s3_endpoint_url=None) == []
