"""django-celery-beat's tables under the name of what they hold here: housekeeping, and none of the users' jobs."""

from __future__ import annotations

from django_celery_beat.apps import BeatConfig


class SystemTasksConfig(BeatConfig):  # type: ignore[misc]  # django-celery-beat has no types
    verbose_name = "System tasks"
