"""What a run of killings did, and what the auditor said afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tools.killing.beats import Moment


@dataclass(slots=True)
class Report:
    seed: int
    seconds: float
    kills: int = 0
    in_transaction: int = 0  # of the kills: with a transaction open
    firing: int = 0  # of the kills: inside the transaction that fires
    committed: int = 0  # of the kills: just after that transaction
    bystanders_killed: int = 0
    downtimes: int = 0  # how often all beats were away at once
    downtime_seconds: float = 0
    versions: int = 0  # in the schedules' history: how often they were created, paused, resumed and edited
    died: int = 0  # beats that ended by themselves
    exit_code: int = -1  # of the auditor
    audit: dict[str, object] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)  # the last of what beats logged

    @property
    def clean(self) -> bool:
        """Whether the auditor could explain everything."""
        return self.exit_code == 0

    def count(self, name: str) -> int:
        """A number of the audit."""
        number = self.audit.get(name, 0)
        assert isinstance(number, int), name
        return number

    def add(self, moment: Moment) -> None:
        self.kills += 1
        self.in_transaction += moment.in_transaction
        self.firing += moment.firing
        self.committed += moment.committed

    def missing_kills(self) -> list[str]:
        """Which moments that matter were hit too rarely."""
        wanted = {
            "kills": (self.kills, min(self.seconds / 8, 30)),
            "kills while a beat fired": (self.firing, min(self.seconds / 20, 6)),
            "kills just after it had fired": (self.committed, min(self.seconds / 12, 6)),
            "times without any beat": (self.downtimes, 1),
        }
        return _too_few(wanted)

    def shortfall(self) -> str:
        """Why a clean run would prove little; empty: it proves something."""
        wanted = {
            "instants": (self.count("expected"), self.seconds * 15),
            "instants that fired": (self.count("fired"), self.seconds * 8),
            "instants that were missed": (self.count("missed"), 1),
            "instants that were dropped": (self.count("dropped"), 1),
            "instants that were skipped": (self.count("skipped"), 1),
            "versions of schedules": (self.versions, self.count("schedules") * 1.2),
        }
        few = self.missing_kills() + _too_few(wanted)
        if self.died:
            few.append(f"beats that ended by themselves: {self.died}, at most 0")
        return f"The run proves too little. {'; '.join(few)}." if few else ""

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    def as_text(self) -> str:
        lines = [
            f"seed {self.seed}, {self.seconds:g} s: {self.kills} kills of a beat, {self.in_transaction} inside a"
            f" transaction, {self.firing} of them while it fired, {self.committed} just after;"
            f" {self.bystanders_killed} of who stood by;"
            f" {self.downtimes} times without any beat, {self.downtime_seconds:.0f} s in all;"
            f" {self.versions} versions of schedules",
            f"auditor: exit code {self.exit_code}, "
            + ", ".join(f"{name} {value}" for name, value in self.audit.items() if isinstance(value, int)),
            f"lateness in ms: {self.audit.get('lateness_ms')}",
        ]
        if not self.clean:
            lines += [f"unexplained: {each}" for each in _listed(self.audit.get("differences"))]
            lines += self.complaints
        return "\n".join(lines)


def _too_few(wanted: Mapping[str, tuple[int, float]]) -> list[str]:
    return [f"{name}: {count}, at least {least:.0f}" for name, (count, least) in wanted.items() if count < least]


def _listed(differences: object) -> list[object]:
    return differences if isinstance(differences, list) else []
