"""Which settings production refuses."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from scheduler_project.checks import insecurities
from scheduler_project.settings.environment import DEVELOPMENT_SECRET_KEY, Environment, read_environment

SAFE: dict[str, Any] = {
    "mode": "production",
    "secret_key": SecretStr("k" * 50),
    "debug": False,
    "allowed_hosts": ("punctual.example.org",),
    "flower_basic_auth": SecretStr("user:password"),
    "flower_auth_provider": None,
}


def environment(**changes: Any) -> Environment:
    return read_environment().model_copy(update=SAFE | changes)


def found(**changes: Any) -> list[str]:
    return [insecurity.id for insecurity in insecurities(environment(**changes))]


def test_safe_settings_are_taken() -> None:
    assert found() == []
    assert found(flower_basic_auth=None, flower_auth_provider="flower.views.auth.GithubLoginHandler") == []


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
def test_each_insecurity_is_refused_in_production_only(changes: dict[str, Any], id_: str) -> None:
    assert found(**changes) == [id_]
    assert found(**changes, mode="development") == []
