"""The description of a process, and the file through which it reaches `launch.py`.

Secrets travel in that private file, so that none shows up in a command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scheduler_project.embedded.private_files import write_private

LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: int = 10
    # The (uid, gid) that the process believes to be; None leaves it as it is.
    map_to: tuple[int, int] | None = None
    # An empty /tmp of its own, in which `visible` paths stay reachable.
    private_tmp: bool = False
    visible: tuple[Path, ...] = ()
    # Whether it ends with its parent; only what is meant to stay behind does not.
    ends_with_parent: bool = True
    # Whether children that a killed former life left behind are ended before it starts again.
    ends_former_group: bool = False

    def write(self, directory: Path, *, record: Path | None = None) -> tuple[str, ...]:
        """Writes the description into `directory` and returns the command that becomes the process.

        The process notes in `record` who it is, for whoever must find it after its supervisor is gone.
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
                    "end_former_group": self.ends_former_group,
                }
            ),
        )
        return (sys.executable, "-I", "-S", str(LAUNCHER), str(path))


def environment_of(name: str, directory: Path) -> dict[str, str]:
    """What a process that was written there is told."""
    environment: dict[str, str] = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))["environment"]
    return environment


def engine_environment(home: Path) -> dict[str, str]:
    """What an engine needs to know of its caller: nothing but where programs are."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC"}
