"""Who changed what, to be read."""

from __future__ import annotations

import json

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from jobs.admin.read_only import ReadOnlyAdmin
from jobs.models import AuditEntry


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin[AuditEntry]):
    list_display = ["at", "actor_name", "action", "object_name", "via", "address"]
    list_filter = ["via", "object_type"]
    # By whole words: each has its index, and a part of one would read everything.
    search_fields = ["actor_name__exact", "action__exact", "object_id__exact"]
    search_help_text = "A user, an action such as job.paused, or the id of what was changed."
    ordering = ["-id"]
    fields = [
        "at", "actor_name", "token_name", "via", "address", "action", "object_type", "object_id", "object_name",
        "differences",
    ]  # fmt: skip
    readonly_fields = ["differences"]

    @admin.display(description="what changed")
    def differences(self, entry: AuditEntry) -> SafeString:
        names = sorted({*entry.before, *entry.after})
        if not names:
            return mark_safe("")
        rows = format_html_join(
            "",
            "<tr><th>{}</th><td>{}</td><td>{}</td></tr>",
            ((name, _written(entry.before, name), _written(entry.after, name)) for name in names),
        )
        return format_html("<table><tr><th></th><th>before</th><th>after</th></tr>{}</table>", rows)


def _written(values: dict[str, object], name: str) -> str:
    if name not in values:
        return ""
    value = values[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
