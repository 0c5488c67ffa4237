"""Configuration from environment variables; errors never contain values."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from scheduler_project.settings.environment import Environment, format_validation_error

NEEDED = {
    "DATABASE_URL": "postgres://user:hunter2@db:5432/punctual",
    "REDIS_URL": "redis://redis:6379/0",
    "S3_BUCKET": "punctual",
}


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for field in Environment.model_fields.values():
        monkeypatch.delenv(str(field.validation_alias), raising=False)
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def read() -> Environment:
    return Environment()  # type: ignore[call-arg]  # the fields come from the environment


def error_message() -> str:
    with pytest.raises(ValidationError) as caught:
        read()
    return format_validation_error(caught.value)


def test_only_three_variables_are_required(variables: pytest.MonkeyPatch) -> None:
    environment = read()

    assert environment.mode == "production"
    assert environment.debug is False
    assert environment.allowed_hosts == ()


def test_lists_are_separated_by_commas(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("ALLOWED_HOSTS", "a.example.org, b.example.org,")

    assert read().allowed_hosts == ("a.example.org", "b.example.org")


def test_log_days_are_at_most_retention_days(variables: pytest.MonkeyPatch) -> None:
    assert (read().effective_log_days, read().log_max_mb) == (14, 0)
    variables.setenv("PUNCTUAL_RETENTION_DAYS", "7")
    assert read().effective_log_days == 7
    variables.setenv("PUNCTUAL_LOG_DAYS", "2")
    assert read().effective_log_days == 2
    variables.setenv("PUNCTUAL_LOG_DAYS", "8")
    assert "PUNCTUAL_LOG_DAYS must be at most PUNCTUAL_RETENTION_DAYS (7)" in error_message()


def test_one_user_gets_half_of_the_follower_places(variables: pytest.MonkeyPatch) -> None:
    assert read().effective_waiting_followers_each == 1000
    for total, each in (("0", 0), ("1", 1), ("5", 3)):
        variables.setenv("PUNCTUAL_WAITING_FOLLOWERS", total)
        assert read().effective_waiting_followers_each == each
    variables.setenv("PUNCTUAL_WAITING_FOLLOWERS_EACH", "5")
    assert read().effective_waiting_followers_each == 5


def test_worker_resources_are_names_and_amounts(variables: pytest.MonkeyPatch) -> None:
    assert read().worker_resources == {}
    variables.setenv("PUNCTUAL_WORKER_RESOURCES", "gpu=2, licence=5,")

    assert read().worker_resources == {"gpu": 2, "licence": 5}


@pytest.mark.parametrize(
    "value", ["gpu", "gpu=", "gpu=-1", "gpu=1.5", "gpu=1,gpu=2", "cpu=4", "G P U=1", "gpu=9999999999"]
)
def test_invalid_worker_resources_are_refused(variables: pytest.MonkeyPatch, value: str) -> None:
    variables.setenv("PUNCTUAL_WORKER_RESOURCES", value)

    assert "such as gpu=2,licence=5" in error_message()


def test_network_is_off_by_default(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("PUNCTUAL_WORKER_NETWORK_ALLOW", "10.1.0.0/16, 192.168.7.9")
    variables.setenv("PUNCTUAL_WORKER_NETWORK_DNS", "10.1.0.53,9.9.9.9")
    assert read().worker_network_rules is None
    variables.setenv("PUNCTUAL_WORKER_NETWORK", "1")

    rules = read().worker_network_rules
    assert rules is not None
    assert list(map(str, rules.allowed)) == ["10.1.0.0/16", "192.168.7.9/32"]
    assert list(map(str, rules.resolvers)) == ["10.1.0.53", "9.9.9.9"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ALLOW", "intranet", "such as 10.1.0.0/16"),
        ("ALLOW", "10.1.0.1/16", "host bits"),
        ("ALLOW", "fd00::/8", "IPv4"),
        ("ALLOW", "127.0.0.1", "stay blocked"),
        ("ALLOW", "0.0.0.0/0", "stay blocked"),
        ("DNS", "dns.example", "addresses of resolvers"),
        ("DNS", "10.1.0.53", "PUNCTUAL_WORKER_NETWORK_ALLOW"),
    ],
)
def test_invalid_network_range_is_refused(variables: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    variables.setenv(f"PUNCTUAL_WORKER_NETWORK_{name}", value)

    assert words in error_message()


@pytest.mark.parametrize("name", NEEDED)
def test_missing_variable_is_reported(variables: pytest.MonkeyPatch, name: str) -> None:
    variables.delenv(name)

    assert f"{name} is not set" in error_message()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://user:hunter2@db/punctual"),
        ("DATABASE_URL", "hunter2"),
        ("REDIS_URL", "http://:hunter2@redis"),
        ("S3_BUCKET", "ab"),
        ("DEBUG", "hunter2"),
        ("PUNCTUAL_ENV", "hunter2"),
        ("PUNCTUAL_LEASE_SECONDS", "1"),
        ("PUNCTUAL_RENEW_SECONDS", "20"),
        ("DATABASE_POOL_SIZE", "0"),
        ("PUNCTUAL_SECRETS_KEYS", f"{'k' * 32},hunter2"),
        ("PUNCTUAL_SECRETS_KEYS", "hunter2-hunter2-hunter2-hunter2-,hunter2-hunter2-hunter2-hunter2-"),
        ("PUNCTUAL_SECRETS_KEYS", ","),
    ],
)
def test_invalid_value_is_reported_without_the_value(variables: pytest.MonkeyPatch, name: str, value: str) -> None:
    variables.setenv(name, value)

    text = error_message()
    assert name in text
    assert "hunter2" not in text


def test_all_errors_are_reported_together(variables: pytest.MonkeyPatch) -> None:
    variables.delenv("REDIS_URL")
    variables.setenv("S3_BUCKET", "x")

    text = error_message()
    assert "REDIS_URL" in text
    assert "S3_BUCKET" in text


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://:p@redis:6379/1", "redis://:p@redis:6379/1"),
        ("unix:///run/valkey.sock?db=2", "redis+socket:///run/valkey.sock?virtual_host=2"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock"),
    ],
)
def test_broker_url_uses_kombu_syntax(variables: pytest.MonkeyPatch, url: str, broker: str) -> None:
    variables.setenv("REDIS_URL", url)

    assert read().celery_broker_url == broker
