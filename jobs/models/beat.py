"""What beats share: leases for duties of one at a time, what all of them count, when any last looked for the lost."""

from __future__ import annotations

from django.db import models


class BeatLease(models.Model):
    duty = models.CharField(max_length=32, primary_key=True)
    holder = models.UUIDField()
    lease_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.duty} until {self.lease_until:%H:%M:%S}"


class Counter(models.Model):
    """A number that only grows, whichever process adds to it: what it counted outlives the process."""

    name = models.CharField(max_length=63, primary_key=True)
    value = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


class ReaperStamp(models.Model):
    """One row: every pass of every beat stamps it, so that a gap shows when there was none."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    stamped_at = models.DateTimeField()
    unbroken_since = models.DateTimeField(help_text="Passes have followed each other without a gap since then.")

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="reaper_stamp_is_one")]

    def __str__(self) -> str:
        return f"{self.stamped_at:%H:%M:%S}, unbroken since {self.unbroken_since:%H:%M:%S}"
