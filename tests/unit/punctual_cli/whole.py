"""The command line with all commands loaded."""

from __future__ import annotations

from importlib import import_module

import typer
from typer.core import TyperGroup

from punctual_cli.app import app
from punctual_cli.commands import ENTRIES


def whole_tree() -> TyperGroup:
    for entry in ENTRIES.values():
        import_module(f"punctual_cli.commands.{entry.module}")
    return typer.main.get_group(app)
