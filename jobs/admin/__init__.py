"""Django's admin over the tables: looks everywhere, edits only what is configuration."""

from django.contrib import admin

from jobs.admin import (
    audit,
    calendars,
    executions,
    jobs,
    people,
    queues,
    quotas,
    secrets,
    system_tasks,
    teams,
    tokens,
    webhooks,
    workers,
)

admin.site.site_header = "Punctual"
admin.site.site_title = "Punctual"
admin.site.index_title = "Operations"

__all__ = [
    "audit",
    "calendars",
    "executions",
    "jobs",
    "people",
    "queues",
    "quotas",
    "secrets",
    "system_tasks",
    "teams",
    "tokens",
    "webhooks",
    "workers",
]
