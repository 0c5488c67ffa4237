"""`stack manage`: a command of manage.py that is told where the running stack keeps its things."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from scheduler_project.embedded.down import anything_runs
from scheduler_project.embedded.layout import CHECKOUT, Layout
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.process import environment_of

# Any of the processes that read Django's settings would do.
LIKE = "web"


def manage(layout: Layout, words: Sequence[str]) -> NoReturn:
    """Becomes that command, so that it has the terminal and the exit code to itself."""
    if not anything_runs(layout):
        raise StackProblem("Nothing is running, so there is nothing to manage: start it with `./punctual up`.")
    command = [sys.executable, str(CHECKOUT / "manage.py"), *words]
    os.execve(sys.executable, command, environment_of(LIKE, layout.run))  # noqa: S606 - no shell is wanted
