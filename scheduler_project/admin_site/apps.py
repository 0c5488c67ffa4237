"""Application configs of the admin and of django-celery-beat."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig
from django_celery_beat.apps import BeatConfig


class AuditedAdminConfig(AdminConfig):
    """Django's admin with a site that records changes."""

    default_site = "scheduler_project.admin_site.site.AuditedAdminSite"


class SystemTasksConfig(BeatConfig):  # type: ignore[misc]  # django-celery-beat has no types
    """django-celery-beat's tables, which hold housekeeping tasks and no users' jobs."""

    verbose_name = "System tasks"
