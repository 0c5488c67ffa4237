"""Punctual's own processes: web, beat, worker and Flower, and the environment that configures them.

They are told everything through environment variables, so what runs here is what runs in production.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from scheduler_project.embedded.config import Secrets
from scheduler_project.embedded.layout import CHECKOUT, Layout
from scheduler_project.embedded.ports import LOOPBACK
from scheduler_project.embedded.process import ProcessSpec

ADMIN_USER = "admin"
FLOWER_USER = "flower"
DRAIN_SECONDS = 10
WEB_STOP_SECONDS = 5
# Of the caller's variables, those that would make Python or Django load something else than this checkout.
_DANGEROUS = ("PYTHONHOME", "PYTHONSTARTUP", "DJANGO_SETTINGS_MODULE")


def application_environment(
    layout: Layout, secrets: Secrets, engines: Mapping[str, str], caller: Mapping[str, str]
) -> dict[str, str]:
    passed_on = {name: value for name, value in caller.items() if name not in _DANGEROUS}
    hosts = (LOOPBACK, "localhost")
    not_through_proxies = ",".join(filter(None, (caller.get("NO_PROXY") or caller.get("no_proxy"), *hosts)))
    return {
        **passed_on,
        **engines,
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), caller.get("PATH", os.defpath))),
        "NO_PROXY": not_through_proxies,
        "no_proxy": not_through_proxies,
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


def application_processes(layout: Layout, environment: Mapping[str, str]) -> tuple[ProcessSpec, ...]:
    celery = (sys.executable, "-m", "celery", "-A", "scheduler_project")
    return (
        ProcessSpec(
            name="web",
            argv=(
                *(sys.executable, "-m", "granian"),
                *("--interface", "wsgi", "--host", LOOPBACK, "--port", str(layout.web_port)),
                *("--workers", "1", "--blocking-threads", "32", "--respawn-failed-workers"),
                # Those who wait or follow would hold up the end for as long as a minute.
                *("--workers-kill-timeout", str(WEB_STOP_SECONDS)),
                "scheduler_project.wsgi:application",
            ),
            environment=environment,
            directory=CHECKOUT,
            # Granian's workers go on serving, and keep the port, when their parent is killed.
            ends_former_group=True,
        ),
        ProcessSpec(
            name="beat",
            argv=(*celery, "beat", "--pidfile=", "--loglevel", "INFO"),
            environment=environment,
            directory=CHECKOUT,
        ),
        ProcessSpec(
            name="worker",
            # Asking for neighbours would cost a second at every start and whenever Redis comes back.
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
