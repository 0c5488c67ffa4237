"""A beat, ours or the stock one, or a worker, as a real process whose memory is sampled while it runs."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.laboratory import ROOT
from scheduler_project.localstack.processes.spec import ProcessSpec

SAMPLE_SECONDS = 0.5
STOP_SECONDS = 15


class MeasuredProcess:
    """Starts when entered and has ended when left; it ends with this process too, however that ends."""

    def __init__(self, name: str, argv: tuple[str, ...], directory: Path, environment: Mapping[str, str]) -> None:
        self.environment = {**os.environ, **environment}
        self._spec = ProcessSpec(
            name=name, argv=argv, environment=self.environment, directory=ROOT, stop_seconds=STOP_SECONDS
        )
        self._directory = directory
        self._log = directory / f"{name}.log"
        self._left = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="memory", daemon=True)
        self.started_at = 0.0
        self.samples: list[tuple[float, float]] = []  # wall clock, resident megabytes

    def __enter__(self) -> MeasuredProcess:
        command = self._spec.write(self._directory)
        with self._log.open("wb") as log:
            self.started_at = time.time()
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._child.send_signal(self._spec.stop_signal)
        try:
            self._child.wait(self._spec.stop_seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._sampler.join()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def complaints(self) -> list[str]:
        return [line for line in self.log.splitlines() if " WARNING " in line or " ERROR " in line]

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def memory_mb(self) -> float:
        return max((megabytes for _, megabytes in self.samples), default=0)

    def memory_between(self, first: float, last: float) -> list[float]:
        return [megabytes for at, megabytes in self.samples if first <= at <= last]

    def _sample(self) -> None:
        process = psutil.Process(self._child.pid)
        while not self._left.wait(SAMPLE_SECONDS):
            try:
                self.samples.append((time.time(), process.memory_info().rss / 2**20))
            except psutil.NoSuchProcess:
                return
