"""The peer of `benchmarks.end_to_end`: a plain Celery worker on the same Redis, without schedules, logs or state."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import redis

from benchmarks.laboratory import Laboratory
from benchmarks.measured_process import MeasuredProcess
from benchmarks.plain_app import BROKER, BWRAP, ENDED, app, run
from workers.sandbox.bubblewrap.command_line import find_bwrap

PROCESSES = 8
REDIS_DATABASE = 2
QUEUE, WAITING = "celery", "waiting"
WARM_UP = 50
LOOK_SECONDS = 0.02
ROUND_SECONDS = 300


class PlainCelery:
    """Started when entered. Each task writes one byte to a file when its sandbox has ended."""

    def __init__(self, room: Laboratory) -> None:
        url = urlunsplit(urlsplit(room.redis_url)._replace(path=f"/{REDIS_DATABASE}"))
        self._redis = redis.Redis.from_url(url)
        app.conf.update(broker_url=url)
        self._ended = room.directory / "plain-celery-ended"
        self._worker = MeasuredProcess(
            "plain-celery",
            (sys.executable, "-m", "celery", "-A", "benchmarks.plain_app", "worker", "-c", str(PROCESSES)),
            room.directory,
            # Celery must not set up Django.
            {BROKER: url, BWRAP: str(find_bwrap()), ENDED: str(self._ended), "DJANGO_SETTINGS_MODULE": ""},
        )

    def __enter__(self) -> PlainCelery:
        self._worker.__enter__()
        self.rate(WARM_UP)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)
        app.close()
        self._redis.close()

    def rate(self, runs: int) -> float:
        """Tasks a second, from the moment when all messages are in the worker's queue to the end of the last."""
        with app.producer_pool.acquire(block=True) as producer:
            for _ in range(runs):
                run.apply_async(queue=WAITING, producer=producer)
        expected = self._size() + runs
        started = time.time()
        self._redis.rename(WAITING, QUEUE)
        deadline = time.monotonic() + ROUND_SECONDS
        while self._size() < expected:
            if time.monotonic() > deadline or not self._worker.is_running:
                raise SystemExit(f"The plain Celery worker did not run all tasks:\n{self._worker.log[-2000:]}")
            time.sleep(LOOK_SECONDS)
        return runs / (self._ended.stat().st_mtime - started)

    def _size(self) -> int:
        return os.stat(self._ended).st_size if self._ended.exists() else 0
