"""Django's admin: shows every table, edits only configuration and otherwise calls the services."""

from django.contrib import admin

from jobs.admin import (  # noqa: F401 - registers the pages
    audit,
    calendars,
    executions,
    jobs,
    queues,
    quotas,
    secrets,
    system_tasks,
    teams,
    tokens,
    users,
    webhooks,
    workers,
)

admin.site.site_header = "Punctual"
admin.site.site_title = "Punctual"
admin.site.index_title = "Operations"
