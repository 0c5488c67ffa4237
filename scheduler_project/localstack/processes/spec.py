"""Description of a process, and the private file that passes it to `launch.py`.

Secrets travel in that file, so that none appears in a command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scheduler_project.localstack.private_files import write_private

LAUNCHER_PATH = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: int = 10
    # The (uid, gid) of the process in its user namespace; None: no namespace.
    map_to: tuple[int, int] | None = None
    # An empty private /tmp in which only `visible` paths stay reachable.
    private_tmp: bool = False
    visible: tuple[Path, ...] = ()
    # False only for a detached supervisor.
    ends_with_parent: bool = True
    # Kill children that an earlier, killed instance left running.
    kills_previous_group: bool = False

    def write(self, directory: Path, *, record: Path | None = None) -> tuple[str, ...]:
        """Write the description into `directory` and return the command that becomes the process.

        The process writes its identity to `record`, so that it can be found after its supervisor died.
        """
        path = directory / f"{self.name}.json"
        write_private(
            path,
            json.dumps(
                {
                    "name": self.name,
                    "argv": self.argv,
                    "environment": dict(self.environment),
                    "directory": str(self.directory),
                    "death_signal": int(self.stop_signal) if self.ends_with_parent else None,
                    "map_to": self.map_to,
                    "private_tmp": self.private_tmp,
                    "visible": [str(path) for path in self.visible],
                    "record": None if record is None else str(record),
                    "kill_previous_group": self.kills_previous_group,
                }
            ),
        )
        return (sys.executable, "-I", "-S", str(LAUNCHER_PATH), str(path))


def read_process_environment(name: str, directory: Path) -> dict[str, str]:
    """Return the environment of a process that was described in `directory`."""
    environment: dict[str, str] = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))["environment"]
    return environment


def build_engine_environment(home: Path) -> dict[str, str]:
    """Return the minimal environment of an engine; of the caller's variables only PATH."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC"}
