"""How long `./punctual up` takes after installation: first start (empty `var/`) and second, beside the bare engines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scheduler_project.localstack.engines.standalone import Engines
from scheduler_project.localstack.ports import iter_free_ports

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="punctual-benchmark-"))
    try:
        engines = Engines(directory / "floor")
        try:
            floor = _seconds(engines.start)
        finally:
            engines.stop()
        ports = iter_free_ports()
        environment = {
            **os.environ,
            "PUNCTUAL_VAR": str(directory / "var"),
            "PUNCTUAL_WEB_PORT": str(next(ports)),
            "PUNCTUAL_FLOWER_PORT": str(next(ports)),
        }
        try:
            first = _seconds(lambda: _stack(environment, "up", "--detach"))
            _stack(environment, "down")
            second = _seconds(lambda: _stack(environment, "up", "--detach"))
        finally:
            stop = _seconds(lambda: _stack(environment, "down"))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(
        json.dumps(
            {
                "benchmark": "start",
                "engines_alone_seconds": round(floor, 2),
                "first_seconds": round(first, 2),
                "second_seconds": round(second, 2),
                "stop_seconds": round(stop, 2),
                "cpus": os.cpu_count(),
            }
        )
    )


def _stack(environment: dict[str, str], *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "scheduler_project.localstack", *words],
        cwd=ROOT,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=180,
    )


def _seconds(act: Callable[[], None]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
