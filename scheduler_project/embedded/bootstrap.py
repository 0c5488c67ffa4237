"""Runs the project's own `bootstrap` command: migrations, bucket, admin user and API token, in one process.

It is idempotent, so every start runs it, and a stack whose code is newer than its data is brought up to date.
"""

from __future__ import annotations

import subprocess
import sys

from scheduler_project.embedded.applications import ADMIN_USER
from scheduler_project.embedded.layout import CHECKOUT
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.process import ProcessSpec
from scheduler_project.embedded.stack import Stack

NAME = "bootstrap"
SECONDS = 300


def bootstrap(stack: Stack) -> None:
    log = stack.layout.log(NAME)
    process = ProcessSpec(
        name=NAME,
        argv=(sys.executable, str(CHECKOUT / "manage.py"), "bootstrap", "--admin-user", ADMIN_USER),
        environment={
            **stack.environment,
            "PUNCTUAL_ADMIN_PASSWORD": stack.config.secrets.admin_password,
            "PUNCTUAL_API_TOKEN": stack.config.secrets.api_token,
        },
        directory=CHECKOUT,
    )
    command = process.write(stack.layout.run)
    try:
        with log.open("wb") as file:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=SECONDS, check=False
            )
    except subprocess.TimeoutExpired:
        raise StackProblem(f"Preparing the database took more than {SECONDS} seconds.", log=log) from None
    if done.returncode != 0:
        raise StackProblem("The database, the bucket or the first user could not be prepared.", log=log)
