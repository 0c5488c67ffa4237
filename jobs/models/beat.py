"""State shared by all beats: leader leases, counters, and the reaper's stamp."""

from __future__ import annotations

from django.db import models


class BeatLease(models.Model):
    duty = models.CharField(max_length=32, primary_key=True)
    holder = models.UUIDField()
    lease_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.duty} until {self.lease_until:%H:%M:%S}"


class Counter(models.Model):
    """A monotonic counter that outlives the processes that add to it."""

    name = models.CharField(max_length=63, primary_key=True)
    value = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


class ReaperStamp(models.Model):
    """One row that every reaper pass of every beat stamps, so that gaps without any pass show."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    stamped_at = models.DateTimeField()
    unbroken_since = models.DateTimeField(help_text="Start of the current series of passes without a gap.")

    timeline = models.BigIntegerField(null=True, help_text="Timeline of Postgres at the last pass.")
    placement_resumes_at = models.DateTimeField(
        null=True, help_text="No placement before this time: runs whose claims a failover lost may still be going on."
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="reaper_stamp_is_one")]

    def __str__(self) -> str:
        return f"{self.stamped_at:%H:%M:%S}, unbroken since {self.unbroken_since:%H:%M:%S}"
