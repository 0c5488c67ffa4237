"""Punctual's own processes: web, beat, worker and Flower, and the environment that configures them.

Environment variables are their only configuration, so they run here as in production.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from scheduler_project.localstack.config import Secrets
from scheduler_project.localstack.layout import CHECKOUT, Layout
from scheduler_project.localstack.ports import LOOPBACK
from scheduler_project.localstack.processes.spec import ProcessSpec

ADMIN_USER = "admin"
FLOWER_USER = "flower"
DRAIN_SECONDS = 10
# Caller's variables that would make Python or Django load code from outside this checkout.
_STRIPPED_VARIABLES = ("PYTHONHOME", "PYTHONSTARTUP", "DJANGO_SETTINGS_MODULE")


def build_application_environment(
    layout: Layout, secrets: Secrets, engines: Mapping[str, str], caller: Mapping[str, str]
) -> dict[str, str]:
    inherited = {name: value for name, value in caller.items() if name not in _STRIPPED_VARIABLES}
    hosts = (LOOPBACK, "localhost")
    no_proxy = ",".join(filter(None, (caller.get("NO_PROXY") or caller.get("no_proxy"), *hosts)))
    return {
        **inherited,
        **engines,
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), caller.get("PATH", os.defpath))),
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "PUNCTUAL_ENV": "production",
        "PUNCTUAL_HTTPS": "false",
        "SECRET_KEY": secrets.secret_key,
        "PUNCTUAL_SECRETS_KEYS": secrets.secrets_key,
        "ALLOWED_HOSTS": ",".join(hosts),
        "CSRF_TRUSTED_ORIGINS": ",".join(f"http://{host}:{layout.web_port}" for host in hosts),
        "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{secrets.flower_password}",
        "PUNCTUAL_WORKER_STATE_DIR": str(layout.data("worker")),
        "PUNCTUAL_WORKER_DRAIN_SECONDS": str(DRAIN_SECONDS),
    }


def list_application_processes(layout: Layout, environment: Mapping[str, str]) -> tuple[ProcessSpec, ...]:
    celery = (sys.executable, "-m", "celery", "-A", "scheduler_project")
    return (
        ProcessSpec(
            name="web",
            argv=(
                *(sys.executable, "-m", "scheduler_project.web"),
                *("--host", LOOPBACK, "--port", str(layout.web_port)),
            ),
            environment=environment,
            directory=CHECKOUT,
            # Granian's workers keep serving, and hold the port, when their parent is killed.
            kills_previous_group=True,
        ),
        ProcessSpec(
            name="beat",
            argv=(*celery, "beat", "--pidfile=", "--loglevel", "INFO"),
            environment=environment,
            directory=CHECKOUT,
        ),
        ProcessSpec(
            name="worker",
            # Mingling would cost a second at every start and whenever Redis comes back.
            argv=(*celery, "worker", "--loglevel", "INFO", "--without-mingle", "--without-gossip"),
            environment=environment,
            directory=CHECKOUT,
            stop_seconds=2 * DRAIN_SECONDS,
        ),
        ProcessSpec(
            name="flower",
            argv=(*celery, "flower", f"--address={LOOPBACK}", f"--port={layout.flower_port}"),
            environment=environment,
            directory=CHECKOUT,
        ),
    )
