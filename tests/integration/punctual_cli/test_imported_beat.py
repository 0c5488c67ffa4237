"""The script that an imported periodic task runs sends the task as beat did, through a real broker."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import redis
from django.conf import settings

from punctual_cli.importers.celery_beat import DEFAULT_SCRIPT
from scheduler_project.localstack.engines.standalone import Engines


def test_missing_celery_error_names_the_remedy(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", DEFAULT_SCRIPT], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (127, "", 1)
    assert "install it where sandboxes see it" in ended.stderr


def test_the_task_is_sent_with_its_arguments_to_its_queue(engines: Engines, tmp_path: Path) -> None:
    queue = f"imported-{uuid4()}"
    script = tmp_path / "program.sh"
    script.write_text(DEFAULT_SCRIPT)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CELERY_BROKER_URL": settings.PUNCTUAL_REDIS_URL,
        "BEAT_TASK": "shop.report",
        "BEAT_ARGS": '[1, "it\'s $HOME"]',
        "BEAT_KWARGS": '{"a": null}',
        "BEAT_QUEUE": queue,
        "BEAT_EXPIRES": "60",
    }
    # Elsewhere than in the checkout, where Celery would find an app of its own.
    ended = subprocess.run(
        ["sh", str(script)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        (message,) = client.lrange(queue, 0, -1)
        client.delete(queue)
        client.delete(f"_kombu.binding.{queue}")
    sent = json.loads(message)
    assert (sent["headers"]["task"], sent["headers"]["expires"] is not None) == ("shop.report", True)
    args, kwargs, _ = json.loads(base64.b64decode(sent["body"]))
    assert (args, kwargs) == ([1, "it's $HOME"], {"a": None})
