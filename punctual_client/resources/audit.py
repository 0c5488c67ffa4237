"""Audit: whether everything fired and ran as promised, and who changed what."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, as_object, text_field
from punctual_client.resources.base import ApiCalls, filter_fields


@dataclass(frozen=True)
class AuditEntry:
    """A change; `before` and `after` contain only the fields that differ."""

    at: str
    actor: str
    action: str
    object_id: str
    object_name: str
    before: JsonObject
    after: JsonObject
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> AuditEntry:
        return cls(
            at=text_field(data, "at"),
            actor=text_field(data, "actor"),
            action=text_field(data, "action"),
            object_id=text_field(data, "object_id"),
            object_name=text_field(data, "object_name"),
            before=as_object(data.get("before")),
            after=as_object(data.get("after")),
            raw=data,
        )

    @property
    def differences(self) -> str:
        """The differences in one line: `priority: 5 → 9, note: broken`."""
        names = [*self.before, *(name for name in self.after if name not in self.before)]
        return ", ".join(f"{name}: {self._describe_difference(name)}" for name in names)

    def _describe_difference(self, name: str) -> str:
        sides = [_format_value(values[name]) for values in (self.before, self.after) if name in values]
        return f"{sides[0]} → (gone)" if name not in self.after else " → ".join(sides)


def _format_value(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


class AuditCalls(ApiCalls):
    def audit_firings(self, *, from_: str, to: str | None = None, job_id: str | None = None) -> JsonObject:
        return self._transport.get("audit/firings", filter_fields(from_=from_, to=to, job_id=job_id))

    def audit_attempts(self, *, from_: str, to: str | None = None, job_id: str | None = None) -> JsonObject:
        return self._transport.get("audit/attempts", filter_fields(from_=from_, to=to, job_id=job_id))

    def changes(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        object_type: str | None = None,
        object_id: str | None = None,
        owner: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:
        """List changes, newest first."""
        filters = filter_fields(
            actor=actor,
            action=action,
            object_type=object_type,
            object_id=object_id,
            owner=owner,
            to=to,
            from_=from_,
        )
        return [AuditEntry.parse(item) for item in self._list("audit", filters, limit)]
