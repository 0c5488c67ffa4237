"""What beats share: leases for duties that one of them does at a time, and what all of them count."""

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
