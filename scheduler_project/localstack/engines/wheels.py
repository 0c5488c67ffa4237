"""Find the executables in the engines' wheels.

If a platform has no wheel, the error names the variable that selects an external server.
"""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

from scheduler_project.localstack.errors import StackError


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
    raise StackError(
        f"The package {distribution} has no {product} for {platform.system()} {platform.machine()}: "
        f"set {instead} to use a {product} of your own."
    )
