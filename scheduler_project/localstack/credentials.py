"""`credentials.json`: URLs and credentials of the running stack, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from scheduler_project.localstack.applications import ADMIN_USER, FLOWER_USER
from scheduler_project.localstack.config import StackConfig
from scheduler_project.localstack.console import Console
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import LOOPBACK
from scheduler_project.localstack.private_files import write_private


@dataclass(frozen=True)
class Credentials:
    url: str
    api_token: str
    admin_user: str
    admin_password: str
    flower_url: str
    flower_user: str
    flower_password: str

    @classmethod
    def build(cls, layout: Layout, config: StackConfig) -> Credentials:
        return cls(
            url=f"http://{LOOPBACK}:{layout.web_port}",
            api_token=config.secrets.api_token,
            admin_user=ADMIN_USER,
            admin_password=config.secrets.admin_password,
            flower_url=f"http://{LOOPBACK}:{layout.flower_port}",
            flower_user=FLOWER_USER,
            flower_password=config.secrets.flower_password,
        )

    @classmethod
    def read(cls, layout: Layout) -> Credentials | None:
        try:
            return cls(**json.loads(layout.credentials.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, layout: Layout) -> None:
        write_private(layout.credentials, json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    def show(self, console: Console, layout: Layout) -> None:
        console.fields(
            {
                "API": f"{self.url}/api/v1",
                "API token": self.api_token,
                "Documentation": f"{self.url}/api/v1/docs",
                "Admin": f"{self.url}/admin/  ({self.admin_user} / {self.admin_password})",
                "Flower": f"{self.flower_url}/  ({self.flower_user} / {self.flower_password})",
                "Saved in": str(layout.credentials),
            }
        )
