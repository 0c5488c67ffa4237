"""Finds the programs that came with the engines' wheels.

A wheel that is missing for a platform is no dead end: the sentence names the variable that brings in a server
of one's own.
"""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

from scheduler_project.embedded.problems import StackProblem


def find_executable(*, distribution: str, name: str, product: str, instead: str) -> Path:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == name:
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path
    raise StackProblem(
        f"The package {distribution} has no {product} for {platform.system()} {platform.machine()}: "
        f"set {instead} to use a {product} of your own."
    )
