"""The three engines as plain child processes, without a supervisor, for tests and benchmarks.

They end with the thread that started them. Each can be stopped, killed and restarted on the same port with
its data.
"""

from __future__ import annotations

import secrets
import subprocess
import threading
from pathlib import Path
from types import TracebackType

from scheduler_project.localstack.engines.base import Engine, wait_until_engine_ready
from scheduler_project.localstack.engines.postgres import Postgres
from scheduler_project.localstack.engines.seaweedfs import Seaweedfs, SeaweedfsPorts
from scheduler_project.localstack.engines.valkey import Valkey
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.ports import iter_free_ports
from scheduler_project.localstack.private_files import make_private_directory

KILL_TIMEOUT_SECONDS = 10


class EngineProcess:
    """One engine and its child process, if it is running."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.log = directory / f"{engine.name}.log"
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise StackError(f"{self.engine.name} is not running.")
        return self._child.pid

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def launch(self) -> None:
        """Start it without waiting; see `wait_ready`."""
        self.engine.prepare()
        command = self.engine.process().write(self._directory)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self) -> None:
        wait_until_engine_ready(self.engine, self._require_running)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def stop(self) -> None:
        """Stop it gracefully, or kill it after its timeout."""
        if self._child is None:
            return
        process = self.engine.process()
        self._child.send_signal(process.stop_signal)
        try:
            self._child.wait(process.stop_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._child = None

    def kill(self) -> None:
        """Kill it, like a crash."""
        if self._child is not None:
            self._child.kill()
            self._child.wait(KILL_TIMEOUT_SECONDS)
            self._child = None

    def _require_running(self) -> None:
        if not self.is_running():
            raise StackError(f"{self.engine.name} ended during its start.", log=self.log)


class Engines:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = iter_free_ports()
        self.postgres = self._process(
            Postgres(
                directory=directory / "postgres",
                port=next(ports),
                password=secrets.token_hex(16),
                superuser_password=secrets.token_hex(16),
                sync_to_disk=False,
            )
        )
        self.valkey = self._process(
            Valkey(directory=directory / "valkey", port=next(ports), password=secrets.token_hex(16))
        )
        self.seaweedfs = self._process(
            Seaweedfs(
                directory=directory / "seaweedfs",
                part_ports=SeaweedfsPorts(*(next(ports) for _ in range(5))),
                access_key_id=secrets.token_hex(10),
                secret_access_key=secrets.token_hex(20),
                signing_key=secrets.token_hex(20),
            )
        )

    @property
    def all(self) -> tuple[EngineProcess, ...]:
        return (self.seaweedfs, self.valkey, self.postgres)

    def start(self) -> None:
        make_private_directory(self.directory)
        try:
            for process in self.all:
                process.launch()
            for process in self.all:
                process.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        threads = [threading.Thread(target=process.stop) for process in self.all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def environment(self) -> dict[str, str]:
        """Return DATABASE_URL, REDIS_URL and the S3 variables."""
        return {name: value for process in self.all for name, value in process.engine.environment().items()}

    def __enter__(self) -> Engines:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _process(self, engine: Engine) -> EngineProcess:
        return EngineProcess(engine, self.directory)
