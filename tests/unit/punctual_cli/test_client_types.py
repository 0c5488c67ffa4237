"""All of the client is typed for programs that use it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import punctual_client
from punctual_client.client import Client
from punctual_client.resources.executions import Execution
from punctual_client.resources.jobs import Job

VERBS = [name for name, _ in inspect.getmembers(Client, inspect.isfunction) if name == "__init__" or name[0] != "_"]


@pytest.mark.parametrize("name", VERBS)
def test_calls_are_fully_typed(name: str) -> None:
    verb = inspect.unwrap(getattr(Client, name))
    hints = get_type_hints(verb)
    assert {*inspect.signature(verb).parameters, "return"} - {"self"} == set(hints)
    assert Any not in hints.values()


def test_common_types_and_errors_are_exported() -> None:
    assert {Client.__name__, Job.__name__, Execution.__name__} <= set(punctual_client.__all__)
    assert all(
        getattr(punctual_client, name).__module__.startswith("punctual_client.") for name in punctual_client.__all__
    )
    # Without it a checker takes an installed package for untyped.
    assert (Path(punctual_client.__file__).parent / "py.typed").is_file()
