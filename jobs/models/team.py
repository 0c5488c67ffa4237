"""Teams: users who share jobs. A job belongs to its owner and may be shared with one team.

A team shares only jobs: secrets, tokens, calendars and webhooks stay with their owners.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models

from jobs.models.ids import new_id
from jobs.models.queue import NAME


class Team(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="jobs.Membership", related_name="teams")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships", db_index=False)
    # Indexed: every request of a user who is not staff reads their teams.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="team_member_once")]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.team_id}"
