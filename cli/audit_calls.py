"""The verbs about what has happened: whether everything fired, and who changed what."""

from __future__ import annotations

from cli.answers import JsonObject
from cli.audit_records import Change
from cli.calls import Calls, given


class AuditCalls(Calls):
    def audit_firings(self, *, from_: str, to: str | None = None, job_id: str | None = None) -> JsonObject:
        return self._transport.get("audit/firings", {"from": from_, **given(to=to, job_id=job_id)})

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
    ) -> list[Change]:
        """The newest first."""
        filters = given(
            actor=actor, action=action, object_type=object_type, object_id=object_id, owner=owner, to=to
        ) | ({} if from_ is None else {"from": from_})
        return [Change.parse(item) for item in self._listing("audit", filters, limit)]
