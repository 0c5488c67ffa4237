"""The command line with all of its commands, for what looks at every one of them."""

from __future__ import annotations

from importlib import import_module

import typer
from typer.core import TyperGroup

from cli.app import app
from cli.commands import ENTRIES


def whole_tree() -> TyperGroup:
    for entry in ENTRIES.values():
        import_module(f"cli.commands.{entry.module}")
    return typer.main.get_group(app)
