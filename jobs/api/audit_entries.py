"""/audit: who changed what; of one's own things, or all of it for staff."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import OuterRef, QuerySet, Subquery
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import InstantField
from jobs.api.queries import PageQuery, page_of
from jobs.api.views import ApiView, page, read_query, user_of
from jobs.models import AuditEntry
from jobs.models.ids import first_id

# How far the clock that an id is made by may be from the database's.
CLOCKS_APART = timedelta(hours=1)


class AuditEntryQuery(PageQuery):
    actor = serializers.CharField(required=False, max_length=150, help_text="The name of who did it.")
    action = serializers.CharField(required=False, max_length=63, help_text="Such as job.paused.")
    object_type = serializers.CharField(required=False, max_length=63, help_text="Such as job.")
    object_id = serializers.CharField(required=False, max_length=63, help_text="Only what happened to this one.")
    owner = serializers.CharField(required=False, max_length=150, help_text="The name of whose it was.")
    to = InstantField(required=False, help_text="The last moment.")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        # A field of this name cannot be declared: it is a word of the language.
        return {**super().get_fields(), "from": InstantField(required=False, help_text="The first moment.")}


class AuditEntryOutput(serializers.ModelSerializer[AuditEntry]):
    actor = serializers.CharField(source="actor_name", help_text="Who did it, as they were called then.")
    token = serializers.CharField(source="token_name", help_text="The token's name; empty: a session.")
    via = serializers.CharField(help_text="`api`, `cli`, `admin`, or `system` for a command on the server.")
    owner = serializers.CharField(allow_null=True, help_text="Whose it is; null: who no longer exists.")
    before = serializers.DictField(help_text="What differed, as it was.")
    after = serializers.DictField(help_text="What differs, as it became.")

    class Meta:
        model = AuditEntry
        fields = [
            "id", "at", "actor", "token", "token_id", "via", "address", "action", "object_type", "object_id",
            "object_name", "owner", "before", "after",
        ]  # fmt: skip
        read_only_fields = fields


def entries_of(user: User) -> QuerySet[AuditEntry]:
    """Who is not staff changes only what is theirs, or nobody's, which then counts as theirs."""
    rows = AuditEntry.objects.all() if user.is_staff else AuditEntry.objects.filter(owner_id=user.pk)
    return rows.annotate(owner=Subquery(User.objects.filter(pk=OuterRef("owner_id")).values("username")))


class AuditEntries(ApiView):
    @extend_schema(
        operation_id="audit_list",
        summary="List changes",
        parameters=[AuditEntryQuery],
        responses=page_of(AuditEntryOutput),
    )
    def get(self, request: Request) -> Response:
        """Every change that somebody made: who, what, before and after, and from where."""
        query = read_query(AuditEntryQuery, request)
        columns = {"actor": "actor_name", "action": "action", "object_type": "object_type", "object_id": "object_id"}
        wanted = {column: query[name] for name, column in columns.items() if name in query}
        rows = entries_of(user_of(request)).filter(**wanted)
        if "owner" in query:
            owner = User.objects.filter(username=query["owner"]).first()
            rows = rows.filter(owner_id=owner.pk) if owner else rows.none()
        if "from" in query:
            first = cast("datetime", query["from"])
            rows = rows.filter(at__gte=first, id__gte=first_id(_moved(first, -CLOCKS_APART)))
        if "to" in query:
            last = cast("datetime", query["to"])
            rows = rows.filter(at__lte=last, id__lt=first_id(_moved(last, CLOCKS_APART)))
        return page(rows, request, AuditEntryOutput)


def _moved(moment: datetime, by: timedelta) -> datetime:
    """Within what an id can tell."""
    earliest, latest = datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 12, 1, tzinfo=UTC)
    return min(max(moment, earliest), latest) + by
