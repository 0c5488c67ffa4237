"""The pages of Django's admin: show every table, edit only configuration, call a capability package for the rest.

Every edit is audited by `scheduler_project/admin_site`.
Entry points: one module per section, imported here to register its pages; `base.ReadOnlyAdmin` for a new page.
"""

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
