"""What a user writes without a scheduler: a Celery task that runs the usual bubblewrap line."""

from __future__ import annotations

import os
import subprocess

from celery import Celery

BROKER, BWRAP, ENDED = "PLAIN_CELERY_BROKER", "PLAIN_CELERY_BWRAP", "PLAIN_CELERY_ENDED"
ARGUMENTS = (
    *("--unshare-all", "--die-with-parent", "--new-session"),
    *("--ro-bind", "/usr", "/usr"),
    *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - the sandbox's own
    "/usr/bin/true",
)

app = Celery("plain", broker=os.environ.get(BROKER), fixups=[])


@app.task
def run() -> None:
    subprocess.run([os.environ[BWRAP], *ARGUMENTS], check=True)
    with open(os.environ[ENDED], "ab") as ended:
        ended.write(b".")
