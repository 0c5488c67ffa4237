from __future__ import annotations

import dataclasses
import json
import socket
import stat
from pathlib import Path

import pytest

from scheduler_project.localstack.config import InternalPorts, Secrets, StackConfig, ensure_free_ports, load_config
from scheduler_project.localstack.errors import StackError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def test_config_is_created_once_and_private(path: Path) -> None:
    first = load_config(path, data=[])

    assert load_config(path, data=[]) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["config.json"]


def test_secrets_are_distinct_and_alphanumeric() -> None:
    values = dataclasses.asdict(Secrets.generate()).values()

    assert len(set(values)) == len(values)
    assert all(value.isalnum() and len(value) >= 24 for value in values)
    assert Secrets.generate() != Secrets.generate()


def _without(document: dict[str, dict[str, object]], section: str, name: str) -> dict[str, dict[str, object]]:
    return {**document, section: {key: value for key, value in document[section].items() if key != name}}


def test_damaged_config_is_reported_and_kept(path: Path) -> None:
    config = StackConfig(Secrets.generate(), InternalPorts.pick())
    document = dataclasses.asdict(config)
    for text in (
        "",
        '{"secrets": {',
        "[]",
        "null",
        json.dumps({"secrets": 1, "ports": 2}),
        json.dumps(_without(document, "secrets", "secret_key")),
        json.dumps(_without(document, "secrets", "secrets_key")),
        json.dumps(_without(document, "ports", "postgres")),
        json.dumps({**document, "ports": {**document["ports"], "valkey": "6379"}}),
        json.dumps({**document, "secrets": {**document["secrets"], "api_token": ""}}),
    ):
        path.write_text(text)
        with pytest.raises(StackError, match=r"config\.json is damaged.*move .* away"):
            load_config(path, data=[])
        assert path.read_text() == text


def test_missing_config_with_existing_data_is_refused(path: Path) -> None:
    data = path.parent / "postgres"
    data.mkdir()

    with pytest.raises(StackError, match=r"passwords of .*postgres"):
        load_config(path, data=[data])
    assert not path.exists()


def test_free_ports_are_kept(path: Path) -> None:
    config = load_config(path, data=[])

    assert ensure_free_ports(config, path) == config


def test_taken_port_is_replaced_and_secrets_are_kept(path: Path) -> None:
    config = load_config(path, data=[])
    with socket.create_server(("127.0.0.1", config.ports.postgres)):
        moved = ensure_free_ports(config, path)

    assert moved.ports.postgres != config.ports.postgres
    assert moved.secrets == config.secrets
    assert StackConfig.read(path) == moved
