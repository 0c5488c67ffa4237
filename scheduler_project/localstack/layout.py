"""Paths and public ports of the local stack.

All files are below one directory: moving it away gives an empty stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scheduler_project.localstack.errors import StackError

CHECKOUT = Path(__file__).resolve().parents[2]
WEB_PORT_VARIABLE = "PUNCTUAL_WEB_PORT"
FLOWER_PORT_VARIABLE = "PUNCTUAL_FLOWER_PORT"
DEFAULT_WEB_PORT = 8000
DEFAULT_FLOWER_PORT = 5555


@dataclass(frozen=True)
class Layout:
    var: Path
    web_port: int = DEFAULT_WEB_PORT
    flower_port: int = DEFAULT_FLOWER_PORT

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Layout:
        return cls(
            var=Path(environment.get("PUNCTUAL_VAR") or CHECKOUT / "var").absolute(),
            web_port=_read_port(environment, WEB_PORT_VARIABLE, DEFAULT_WEB_PORT),
            flower_port=_read_port(environment, FLOWER_PORT_VARIABLE, DEFAULT_FLOWER_PORT),
        )

    @property
    def config(self) -> Path:
        return self.var / "config.json"

    @property
    def credentials(self) -> Path:
        return self.var / "credentials.json"

    @property
    def run(self) -> Path:
        """Descriptions of the running processes: commands, the supervisor's configuration, records."""
        return self.var / "run"

    @property
    def logs(self) -> Path:
        return self.var / "log"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def record(self, process: str) -> Path:
        return self.run / f"{process}.pid"

    def data(self, engine: str) -> Path:
        return self.var / engine


def _read_port(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable) or str(default)
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise StackError(f"{variable} is {text!r}, which is not a port: set it to a number from 1 to 65535.")
    return int(text)
