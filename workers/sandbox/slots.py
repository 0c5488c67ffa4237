"""The slots of a worker: started when they are needed, used by one run after another, each in a cgroup of its own.

Invariant: a slot is given to one run at a time, and only while nothing of the run before is left in it; one that
failed in any way, or is old, is ended and never used again.
"""

import threading
import time
from dataclasses import dataclass

from workers.sandbox import bubblewrap
from workers.sandbox.cgroups import CgroupParents, SlotCgroup, make_cgroup, remove_cgroup
from workers.sandbox.errors import SandboxError
from workers.sandbox.launcher import Launcher, Slot

RENEW_SECONDS = 3600.0  # what it shows of the host's configuration is as old as the slot


@dataclass(frozen=True)
class Place:
    """A slot and its cgroup, where the host has any."""

    slot: Slot
    cgroup: SlotCgroup | None

    @property
    def settled(self) -> bool:
        """Whether the memory of the run that is over is free again: some of it may outlive its processes."""
        return self.cgroup is None or self.cgroup.settled()

    @property
    def fresh(self) -> bool:
        return self.slot.alive and time.monotonic() - self.slot.started_at < RENEW_SECONDS

    def end(self) -> None:
        self.slot.close()
        self.slot.wait()
        if self.cgroup is not None and self.slot.ours:
            remove_cgroup(self.cgroup.directories())


class Slots:
    """Shared by all threads of one worker process."""

    def __init__(
        self, launcher: Launcher, cgroups: CgroupParents, *, share: bool, resolver_file: str | None = None
    ) -> None:
        self._launcher = launcher
        self._cgroups = cgroups
        self._share = share
        self._resolver_file = resolver_file
        self._lock = threading.Lock()
        self._idle: list[Place] = []
        self._busy: set[Place] = set()
        self._closed = False

    def prepare(self, count: int) -> None:
        """Have so many ready, so that the first runs need not wait for them."""
        places = [self.take() for _ in range(count)]
        for place in places:
            self.give_back(place)

    def take(self) -> Place:
        place = self._take_idle() or self._start()
        with self._lock:
            if not self._closed:
                self._busy.add(place)
                return place
        place.end()
        raise SandboxError("The sandbox is closed.")

    def give_back(self, place: Place) -> None:
        """Once nothing of the run is left."""
        with self._lock:
            self._busy.discard(place)
            if place.fresh and place.settled and not self._closed:
                self._idle.append(place)
                return
        place.end()

    def give_up(self, place: Place) -> None:
        """Something went wrong in it."""
        with self._lock:
            self._busy.discard(place)
        place.end()

    def close(self) -> None:
        """End all slots, and with them whatever runs; who used one gives it back or up all the same."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for place in (*idle, *self._busy):
                place.slot.close()
        for place in idle:
            place.end()
        self._launcher.close()

    def _take_idle(self) -> Place | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                place = self._idle.pop()  # the last one used: what it needs is still in the caches
            if place.fresh:
                return place
            place.end()

    def _start(self) -> Place:
        plan = bubblewrap.root_plan(self._resolver_file)
        slot = self._launcher.start_slot()
        place = Place(slot, None)
        try:
            cgroup = make_cgroup(self._cgroups)
            place = Place(slot, cgroup)
            if cgroup is not None:
                cgroup.add(slot.pid)
            if self._share:
                slot.open(plan)
            if cgroup is not None:
                cgroup.rest()
        except OSError as error:
            place.end()
            raise SandboxError(
                f"The cgroup of a slot could not be made ({error}): restart the worker, so that it finds out "
                "anew what this host allows."
            ) from error
        except SandboxError:
            place.end()
            raise
        return place
