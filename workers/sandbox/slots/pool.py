"""Pool of a worker's slots: started on demand and reused by later runs, each in its own cgroup.

Invariant: a slot serves one run at a time, and only if nothing of the previous run remains; slots that failed in any
way, or are old, are ended.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.bubblewrap import command_line
from workers.sandbox.cgroups.lifecycle import CgroupParents, SlotCgroup, make_cgroup, remove_cgroup
from workers.sandbox.errors import SandboxError
from workers.sandbox.slots.launcher import Launcher, SlotProcess

MAX_SLOT_AGE_SECONDS = 3600.0  # a slot copies the host's configuration when it starts


@dataclass(frozen=True)
class PooledSlot:
    """A slot and its cgroup, if the host has cgroups."""

    slot: SlotProcess
    cgroup: SlotCgroup | None

    @property
    def settled(self) -> bool:
        """Return whether the memory of the last run is free again: some may outlive its processes."""
        return self.cgroup is None or self.cgroup.settled()

    @property
    def fresh(self) -> bool:
        return self.slot.alive and time.monotonic() - self.slot.started_at < MAX_SLOT_AGE_SECONDS

    def end(self) -> None:
        self.slot.close()
        self.slot.wait()
        if self.cgroup is not None and self.slot.ours:
            remove_cgroup(self.cgroup.directories())


class SlotPool:
    """The slots of a worker process, shared by all its threads."""

    def __init__(
        self,
        launcher: Launcher,
        cgroups: CgroupParents,
        *,
        share: bool,
        resolver_file: str | None = None,
        inputs: Path | None = None,
    ) -> None:
        self._launcher = launcher
        self._cgroups = cgroups
        self._share = share
        self._resolver_file = resolver_file
        self._inputs = inputs
        self._lock = threading.Lock()
        self._idle: list[PooledSlot] = []
        self._busy: set[PooledSlot] = set()
        self._closed = False

    def prepare(self, count: int) -> None:
        """Start this many slots ahead of the first runs."""
        pooled_slots = [self.take() for _ in range(count)]
        for pooled in pooled_slots:
            self.release(pooled)

    def take(self) -> PooledSlot:
        pooled = self._take_idle() or self._start()
        with self._lock:
            if not self._closed:
                self._busy.add(pooled)
                return pooled
        pooled.end()
        raise SandboxError("The sandbox is closed.")

    def release(self, pooled: PooledSlot) -> None:
        """Return a clean slot to the pool."""
        with self._lock:
            self._busy.discard(pooled)
            if pooled.fresh and pooled.settled and not self._closed:
                self._idle.append(pooled)
                return
        pooled.end()

    def discard(self, pooled: PooledSlot) -> None:
        """End a slot in which something went wrong."""
        with self._lock:
            self._busy.discard(pooled)
        pooled.end()

    def close(self) -> None:
        """End all slots and their runs; busy slots are still released or discarded by their users."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for pooled in (*idle, *self._busy):
                pooled.slot.close()
        for pooled in idle:
            pooled.end()
        self._launcher.close()

    def _take_idle(self) -> PooledSlot | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                pooled = self._idle.pop()  # the most recently used slot has warm caches
            if pooled.fresh:
                return pooled
            pooled.end()

    def _start(self) -> PooledSlot:
        plan = command_line.plan_root(self._resolver_file, self._inputs)
        slot = self._launcher.start_slot()
        pooled = PooledSlot(slot, None)
        try:
            cgroup = make_cgroup(self._cgroups)
            pooled = PooledSlot(slot, cgroup)
            if cgroup is not None:
                cgroup.add(slot.pid)
            if self._share:
                slot.open(plan)
            if cgroup is not None:
                cgroup.rest()
        except OSError as error:
            pooled.end()
            raise SandboxError(
                f"The cgroup of a slot could not be created ({error}): restart the worker, so that it detects "
                "again what this host allows."
            ) from error
        except SandboxError:
            pooled.end()
            raise
        return pooled
