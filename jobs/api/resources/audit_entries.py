"""/audit: the log of changes; users see entries of their own objects, staff sees all."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import User
from django.db.models import OuterRef, QuerySet, Subquery
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import Fields, InstantField
from jobs.api.framework.query_params import PageQuery, RangeValidationMixin, build_page_serializer
from jobs.api.framework.views import ApiView, paginate_filtered, read_query, require_user
from jobs.audit.entry_list import ORDERING, AuditFilters, list_entries
from jobs.models import AuditEntry
from jobs.models.visibility import is_operator


class AuditEntryQuery(RangeValidationMixin, PageQuery):
    actor = serializers.CharField(required=False, max_length=150, help_text="Filter by name of the acting user.")
    action = serializers.CharField(required=False, max_length=63, help_text="Filter by action, such as job.paused.")
    object_type = serializers.CharField(required=False, max_length=63, help_text="Filter by object type, such as job.")
    object_id = serializers.CharField(required=False, max_length=63, help_text="Filter by id of the object.")
    owner = serializers.CharField(required=False, max_length=150, help_text="Filter by name of the object's owner.")
    to = InstantField(required=False, help_text="Only entries until this instant.")

    def get_fields(self) -> Fields:
        # `from` is a Python keyword, so it cannot be a class attribute.
        return {
            **super().get_fields(),
            "from": InstantField(required=False, help_text="Only entries from this instant on."),
        }


class AuditEntryOutput(serializers.ModelSerializer[AuditEntry]):
    actor = serializers.CharField(source="actor_name", help_text="Name of the acting user at that time.")
    token = serializers.CharField(source="token_name", help_text="Name of the token; empty for a session.")
    via = serializers.CharField(help_text="`api`, `cli`, `admin`, or `system` for a command on the server.")
    owner = serializers.CharField(allow_null=True, help_text="Owner of the object; null if the user was deleted.")
    before = serializers.DictField(help_text="Old values of the changed fields.")
    after = serializers.DictField(help_text="New values of the changed fields.")

    class Meta:
        model = AuditEntry
        fields = [
            "id", "at", "actor", "token", "token_id", "via", "address", "action", "object_type", "object_id",
            "object_name", "owner", "before", "after",
        ]  # fmt: skip
        read_only_fields = fields


def list_visible_entries(user: User) -> QuerySet[AuditEntry]:
    """Return all entries for staff, else those of the user's objects; changes to unowned objects count as theirs."""
    rows = AuditEntry.objects.all() if is_operator(user) else AuditEntry.objects.filter(owner_id=user.pk)
    return rows.annotate(owner=Subquery(User.objects.filter(pk=OuterRef("owner_id")).values("username")))


class AuditEntries(ApiView):
    @extend_schema(
        operation_id="audit_list",
        summary="List changes",
        parameters=[AuditEntryQuery],
        responses=build_page_serializer(AuditEntryOutput),
    )
    def get(self, request: Request) -> Response:
        """List changes with actor, object, old and new values, and origin."""
        query = cast("dict[str, Any]", read_query(AuditEntryQuery, request))
        names = ("actor", "action", "object_type", "object_id", "owner")
        given = {name: query[name] for name in names if name in query}
        user, filters = require_user(request), AuditFilters(**given, first=query.get("from"), last=query.get("to"))
        return paginate_filtered(
            list_visible_entries(user), list_entries(user, filters), ORDERING, request, AuditEntryOutput
        )
