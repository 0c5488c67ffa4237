"""Whoever checks the types of a program that uses the client finds all of it typed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import cli
import punctual_client
from cli.client import Client
from cli.records import Execution, Job

VERBS = [name for name, _ in inspect.getmembers(Client, inspect.isfunction) if name == "__init__" or name[0] != "_"]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_says_what_it_takes_and_what_it_gives(name: str) -> None:
    verb = inspect.unwrap(getattr(Client, name))
    hints = get_type_hints(verb)
    assert {*inspect.signature(verb).parameters, "return"} - {"self"} == set(hints)
    assert Any not in hints.values()


def test_what_it_gives_most_and_what_it_raises_can_be_named() -> None:
    assert {Client.__name__, Job.__name__, Execution.__name__} <= set(punctual_client.__all__)
    assert all(getattr(punctual_client, name).__module__.startswith("cli.") for name in punctual_client.__all__)
    # Without it a checker takes an installed package for untyped.
    assert (Path(cli.__file__).parent / "py.typed").is_file()
