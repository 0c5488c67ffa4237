"""Processes with settings that production refuses exit at once with the remedy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.stack import ROOT

COMMANDS = {
    "beat": ("-m", "celery", "-A", "scheduler_project", "beat", "--pidfile="),
    "worker": ("-m", "celery", "-A", "scheduler_project", "worker"),
    "web": ("-c", "import scheduler_project.asgi"),
    "bootstrap": ("manage.py", "bootstrap", "--admin-user", "admin"),
}
SAFE = {
    "PUNCTUAL_ENV": "production",
    "SECRET_KEY": "k" * 50,
    "ALLOWED_HOSTS": "punctual.example",
    "FLOWER_BASIC_AUTH": "user:password",
    "S3_BUCKET": "programs",
    # Documentation addresses, where nothing answers.
    "DATABASE_URL": "postgres://punctual:secret@192.0.2.1/punctual",
    "REDIS_URL": "redis://192.0.2.2:6379/0",
    "S3_ENDPOINT_URL": "http://192.0.2.3:9000",
}


def start(command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    return subprocess.run(
        [sys.executable, *COMMANDS[command]],
        cwd=ROOT,
        env=inherited | SAFE | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_unencrypted_remote_links_are_refused_at_start(command: str) -> None:
    ended = start(command)
    assert ended.returncode != 0
    for variable, link in (("DATABASE_URL", "postgres"), ("REDIS_URL", "redis"), ("S3_ENDPOINT_URL", "s3")):
        assert f"{variable} leads to another machine without encryption" in ended.stderr
        assert f"PUNCTUAL_ALLOW_PLAINTEXT={link}" in ended.stderr
    assert "secret" not in ended.stderr


def test_allowed_links_are_accepted() -> None:
    ended = start("web", PUNCTUAL_ALLOW_PLAINTEXT="postgres, redis,s3")
    assert ended.returncode == 0, ended.stderr
