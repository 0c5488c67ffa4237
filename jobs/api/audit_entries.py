"""/audit: who changed what; of one's own things, or all of it for staff."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import OuterRef, QuerySet, Subquery
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import InstantField
from jobs.api.queries import PageQuery, Ranges, page_of
from jobs.api.views import ApiView, read_query, user_of, walked_page
from jobs.models import AuditEntry
from jobs.services.audit_lists import ORDERING, AuditFilters, list_entries


class AuditEntryQuery(Ranges, PageQuery):
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
        query = cast("dict[str, Any]", read_query(AuditEntryQuery, request))
        names = ("actor", "action", "object_type", "object_id", "owner")
        given = {name: query[name] for name in names if name in query}
        user, filters = user_of(request), AuditFilters(**given, first=query.get("from"), last=query.get("to"))
        return walked_page(entries_of(user), list_entries(user, filters), ORDERING, request, AuditEntryOutput)
