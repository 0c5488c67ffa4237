"""The server and the token come from the environment or from the local stack, never mixed dangerously."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from punctual_client.config import Config, load_config
from punctual_client.errors import NotConfiguredError


@pytest.fixture
def var(tmp_path: Path) -> Path:
    stored = {"url": "http://127.0.0.1:8000", "api_token": "local"}
    (tmp_path / "credentials.json").write_text(json.dumps(stored))
    return tmp_path


def test_the_environment_comes_first(var: Path) -> None:
    environment = {"PUNCTUAL_URL": "https://x.example/", "PUNCTUAL_TOKEN": "t", "PUNCTUAL_VAR": str(var)}
    assert load_config(environment) == Config("https://x.example", "t")


def test_the_local_stack_comes_next(var: Path) -> None:
    assert load_config({"PUNCTUAL_VAR": str(var)}) == Config("http://127.0.0.1:8000", "local")


def test_the_local_token_is_not_sent_to_another_server(var: Path) -> None:
    with pytest.raises(NotConfiguredError, match="PUNCTUAL_TOKEN is not"):
        load_config({"PUNCTUAL_URL": "https://x.example", "PUNCTUAL_VAR": str(var)})


def test_missing_server_error_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(NotConfiguredError, match=r"run punctual login, or set PUNCTUAL_URL"):
        load_config({"PUNCTUAL_VAR": str(tmp_path)})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": 1, "api_token": "t"}', "\xff"])
def test_a_broken_credentials_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "credentials.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(NotConfiguredError, match=r"credentials\.json"):
        load_config({"PUNCTUAL_VAR": str(tmp_path)})


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:99999", "http://["])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(NotConfiguredError, match="write it as http://host:port"):
        load_config({"PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": "t"})


def test_an_address_is_that_of_the_server_and_nothing_more() -> None:
    with pytest.raises(NotConfiguredError, match="a user name or a password") as refused:
        load_config({"PUNCTUAL_URL": "http://ann:hidden@x", "PUNCTUAL_TOKEN": "t"})
    assert "hidden" not in str(refused.value)
    for url in ("https://x/p/", "https://x/p/api/v1", "https://x/p/api/v1/"):
        assert load_config({"PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": "t"}).url == "https://x/p"


@pytest.mark.parametrize("token", ["a b", "tökén", "a\nb"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(NotConfiguredError, match="not a token"):
        load_config({"PUNCTUAL_URL": "http://x", "PUNCTUAL_TOKEN": token})


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Config("http://x", "secret"))


def test_a_token_is_not_sent_unencrypted_to_another_machine_unless_that_is_allowed() -> None:
    environment = {"PUNCTUAL_URL": "http://punctual.example", "PUNCTUAL_TOKEN": "t"}
    with pytest.raises(NotConfiguredError, match="PUNCTUAL_ALLOW_PLAINTEXT=http"):
        load_config(environment)
    assert load_config(environment | {"PUNCTUAL_ALLOW_PLAINTEXT": "redis, http"}).token == "t"
    assert load_config(environment | {"PUNCTUAL_URL": "https://punctual.example"}).token == "t"
