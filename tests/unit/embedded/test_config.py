from __future__ import annotations

import dataclasses
import json
import socket
import stat
from pathlib import Path

import pytest

from scheduler_project.embedded.config import (
    InternalPorts,
    Secrets,
    StackConfig,
    load_config,
    with_free_ports,
)
from scheduler_project.embedded.problems import StackProblem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def test_it_is_made_once_and_only_its_owner_reads_it(path: Path) -> None:
    first = load_config(path, data=[])

    assert load_config(path, data=[]) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["config.json"]


def test_secrets_differ_and_need_no_quoting() -> None:
    values = dataclasses.asdict(Secrets.generate()).values()

    assert len(set(values)) == len(values)
    assert all(value.isalnum() and len(value) >= 24 for value in values)
    assert Secrets.generate() != Secrets.generate()


def _without(document: dict[str, dict[str, object]], section: str, name: str) -> dict[str, dict[str, object]]:
    return {**document, section: {key: value for key, value in document[section].items() if key != name}}


def test_a_damaged_file_is_named_and_kept(path: Path) -> None:
    config = StackConfig(Secrets.generate(), InternalPorts.pick())
    document = dataclasses.asdict(config)
    for text in (
        "",
        '{"secrets": {',
        "[]",
        "null",
        json.dumps({"secrets": 1, "ports": 2}),
        json.dumps(_without(document, "secrets", "secret_key")),
        json.dumps(_without(document, "ports", "postgres")),
        json.dumps({**document, "ports": {**document["ports"], "valkey": "6379"}}),
        json.dumps({**document, "secrets": {**document["secrets"], "api_token": ""}}),
    ):
        path.write_text(text)
        with pytest.raises(StackProblem, match=r"config\.json is damaged.*move .* away"):
            load_config(path, data=[])
        assert path.read_text() == text


def test_a_stack_of_before_secrets_is_given_a_key_for_them_once(path: Path) -> None:
    config = load_config(path, data=[])
    path.write_text(json.dumps(_without(dataclasses.asdict(config), "secrets", "secrets_key")))
    given = load_config(path, data=[])

    assert len(given.secrets.secrets_key) == 64
    assert given.secrets.secrets_key != config.secrets.secrets_key
    assert dataclasses.replace(given.secrets, secrets_key=config.secrets.secrets_key) == config.secrets
    assert load_config(path, data=[]) == given


def test_new_secrets_are_never_made_beside_data_that_old_ones_open(path: Path) -> None:
    data = path.parent / "postgres"
    data.mkdir()

    with pytest.raises(StackProblem, match=r"passwords of .*postgres"):
        load_config(path, data=[data])
    assert not path.exists()


def test_ports_are_kept_while_they_are_free(path: Path) -> None:
    config = load_config(path, data=[])

    assert with_free_ports(config, path) == config


def test_a_taken_port_moves_the_stack_and_keeps_its_secrets(path: Path) -> None:
    config = load_config(path, data=[])
    with socket.create_server(("127.0.0.1", config.ports.postgres)):
        moved = with_free_ports(config, path)

    assert moved.ports.postgres != config.ports.postgres
    assert moved.secrets == config.secrets
    assert StackConfig.read(path) == moved
