"""The commands of docs/first_cron_job.md, typed literally, against a running stack."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.acceptance.test_cli import LONGEST_COMMAND_SECONDS, ROOT, environment_of
from tests.support.stack import Stack


def test_the_first_cron_job_works_as_it_is_written(stack: Stack, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "first_cron_job.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    # As ./punctual hands over, without looking whether the requirements of the checkout are installed.
    command = tmp_path / "punctual"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m punctual_cli "$@"\n')
    command.chmod(0o755)
    ended = subprocess.run(
        ["bash", "-eux", "-o", "pipefail", "-c", "".join(blocks)],
        cwd=tmp_path,
        env=environment_of(stack),
        capture_output=True,
        text=True,
        timeout=LONGEST_COMMAND_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Hello, world.") == 1
    assert ended.stdout.count("Hello, Paris.") == 2
    assert "~ greet: change\n    env: " in ended.stdout
