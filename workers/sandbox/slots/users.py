"""The host uids for the slots of a root worker.

Invariant: no two living slots have the same uid, so that the kernel isolates their runs: signals, /proc and per-user
limits. A slot's uid is a base plus its pid, and therefore unique.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.errors import SandboxUnavailable

NOBODY = 65534
# Between systemd's ranges for containers and for foreign uids, where no users have names.
DEFAULT_BASE = 1_900_000_000
LAST_ID = 2**31 - 1  # some programs treat larger ids as negative


@dataclass(frozen=True)
class SlotUsers:
    base: int
    uid_per_slot: bool = True  # False: all slots share one uid, as this host has too few

    def uid_of(self, pid: int) -> int:
        """Return the uid, which is also the gid, of the slot with this pid."""
        return self.base + pid if self.uid_per_slot else self.base


def choose_slot_users(process: Path = Path("/proc/self"), kernel: Path = Path("/proc/sys/kernel")) -> SlotUsers:
    """Choose the uids for a root worker; a container with too few uids uses one for all slots."""
    base = _configured_base()
    count = int((kernel / "pid_max").read_text()) + 1
    if base + count > LAST_ID:
        raise SandboxUnavailable(
            f"PUNCTUAL_SANDBOX_UIDS is {base}, but slots need {count} uids below {LAST_ID}: lower it."
        )
    if all(_is_mapped((process / name).read_text(), base, count) for name in ("uid_map", "gid_map")):
        return SlotUsers(base)
    return SlotUsers(NOBODY, uid_per_slot=False)


def _configured_base() -> int:
    chosen = os.environ.get("PUNCTUAL_SANDBOX_UIDS")
    if chosen is None:
        return DEFAULT_BASE
    if not chosen.isascii() or not chosen.isdigit() or int(chosen) <= NOBODY:
        raise SandboxUnavailable(f"PUNCTUAL_SANDBOX_UIDS is {chosen!r}: write a number above {NOBODY}.")
    return int(chosen)


def _is_mapped(table: str, first: int, count: int) -> bool:
    ranges = (tuple(map(int, line.split())) for line in table.splitlines())
    return any(inside <= first and first + count <= inside + length for inside, _, length in ranges)
