"""Read-only page of the audit log."""

from __future__ import annotations

import json

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from jobs.admin.base import ReadOnlyAdmin
from jobs.models import AuditEntry


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin[AuditEntry]):
    list_display = ["at", "actor_name", "action", "object_name", "via", "address"]
    list_filter = ["via", "object_type"]
    # Exact matches only: they have indexes, and a substring search would read the whole table.
    search_fields = ["actor_name__exact", "action__exact", "object_id__exact"]
    search_help_text = "Search by user, action (such as job.paused) or id of the changed object; exact matches only."
    ordering = ["-id"]
    fields = [
        "at", "actor_name", "token_name", "via", "address", "action", "object_type", "object_id", "object_name",
        "differences",
    ]  # fmt: skip
    readonly_fields = ["differences"]

    @admin.display(description="changes")
    def differences(self, entry: AuditEntry) -> SafeString:
        names = sorted({*entry.before, *entry.after})
        if not names:
            return mark_safe("")
        rows = format_html_join(
            "",
            "<tr><th>{}</th><td>{}</td><td>{}</td></tr>",
            ((name, _format_value(entry.before, name), _format_value(entry.after, name)) for name in names),
        )
        return format_html("<table><tr><th></th><th>before</th><th>after</th></tr>{}</table>", rows)


def _format_value(values: dict[str, object], name: str) -> str:
    if name not in values:
        return ""
    value = values[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
