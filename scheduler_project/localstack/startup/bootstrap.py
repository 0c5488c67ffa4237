"""Run `manage.py bootstrap`: migrations, bucket, admin user and API token.

It is idempotent, so every start runs it, which also migrates data of an older checkout.
"""

from __future__ import annotations

import subprocess
import sys

from scheduler_project.localstack.applications import ADMIN_USER
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import CHECKOUT
from scheduler_project.localstack.processes.spec import ProcessSpec
from scheduler_project.localstack.stack import Stack

PROCESS_NAME = "bootstrap"
TIMEOUT_SECONDS = 300


def run_bootstrap(stack: Stack) -> None:
    log = stack.layout.log(PROCESS_NAME)
    process = ProcessSpec(
        name=PROCESS_NAME,
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
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=TIMEOUT_SECONDS, check=False
            )
    except subprocess.TimeoutExpired:
        raise StackError(f"Preparing the database took more than {TIMEOUT_SECONDS} seconds.", log=log) from None
    if done.returncode != 0:
        raise StackError("Could not prepare the database, the bucket or the first user.", log=log)
