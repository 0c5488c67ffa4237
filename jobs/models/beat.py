"""Leases that beats hold in turn, for duties that one of them does at a time."""

from __future__ import annotations

from django.db import models


class BeatLease(models.Model):
    duty = models.CharField(max_length=32, primary_key=True)
    holder = models.UUIDField()
    lease_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.duty} until {self.lease_until:%H:%M:%S}"
