"""The three engines as plain child processes in one directory, without a supervisor: what tests run against.

They end with the thread that started them. Each can be stopped, killed and started again, on the same port
and with its data.
"""

from __future__ import annotations

import secrets
import subprocess
import threading
from pathlib import Path
from types import TracebackType

from scheduler_project.embedded.engine import Engine, wait_until_ready
from scheduler_project.embedded.ports import free_ports
from scheduler_project.embedded.postgres import Postgres
from scheduler_project.embedded.private_files import make_private_directory
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.seaweedfs import Seaweedfs, SeaweedfsPorts
from scheduler_project.embedded.valkey import Valkey

KILL_SECONDS = 10


class EngineProcess:
    """One engine and the child process that runs it, while there is one."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.log = directory / f"{engine.name}.log"
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise StackProblem(f"{self.engine.name} is not running.")
        return self._child.pid

    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def launch(self) -> None:
        """Starts it without waiting for it; see `wait_ready`."""
        self.engine.prepare()
        command = self.engine.process().write(self._directory)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self) -> None:
        wait_until_ready(self.engine, self._require_running)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def stop(self) -> None:
        """Asks it to close, and kills it if it does not."""
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
        """Ends it at once, as a crash would."""
        if self._child is not None:
            self._child.kill()
            self._child.wait(KILL_SECONDS)
            self._child = None

    def _require_running(self) -> None:
        if not self.is_running():
            raise StackProblem(f"{self.engine.name} ended while it was starting.", log=self.log)


class Engines:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports()
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
        stopping = [threading.Thread(target=process.stop) for process in self.all]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def environment(self) -> dict[str, str]:
        """DATABASE_URL, REDIS_URL and the S3 variables, as Punctual's processes read them."""
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
