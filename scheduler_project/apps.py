"""The project as a Django application: it registers the checks of its settings."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import Tags, register

from scheduler_project.checks import check_production_settings


class SchedulerProjectConfig(AppConfig):
    name = "scheduler_project"
    verbose_name = "Punctual"

    def ready(self) -> None:
        register(check_production_settings, Tags.security)
