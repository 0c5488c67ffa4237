"""/teams: groups of users who share jobs; members may read them, staff creates, edits and deletes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access import teams
from jobs.api.framework.conditional import (
    IF_MATCH,
    IF_NONE_MATCH,
    NOT_MODIFIED,
    compute_etag,
    make_if_match_check,
    respond_conditionally,
)
from jobs.api.framework.fields import BoundedListField, EmptyInput, PartialInput, StrictSerializer, TextField
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import (
    ApiView,
    get_or_404,
    paginate,
    read_body,
    read_query,
    require_staff,
    require_user,
    respond_created,
)
from jobs.domain import limits
from jobs.models import Team
from jobs.models.visibility import is_operator, read_team_ids

STAFF_ONLY_MESSAGE = "Only staff may create, edit or delete a team."


class TeamInput(StrictSerializer):
    name = TextField(max_length=63, help_text="Unique name: lower-case letters, digits, `_`, `.` and `-`.")
    members = BoundedListField(
        child=TextField(max_length=150),
        default=list,
        max_length=limits.MAX_MEMBERS_PER_TEAM,
        help_text="User names of the members.",
    )


class TeamEditInput(PartialInput, TeamInput):
    """Omitted fields stay unchanged; `members` replaces the whole list."""


class TeamOutput(serializers.ModelSerializer[Team]):
    members = serializers.SerializerMethodField()

    class Meta:
        model = Team
        fields = ["id", "name", "members", "created_at", "updated_at"]
        read_only_fields = fields

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_members(self, team: Team) -> list[str]:
        return sorted(membership.user.username for membership in team.memberships.all())


def list_visible_teams(user: User) -> QuerySet[Team]:
    rows = Team.objects.prefetch_related("memberships__user")
    return rows if is_operator(user) else rows.filter(id__in=read_team_ids(user))


def _make_if_match_check(request: Request, team_id: UUID) -> Callable[[], None]:
    rows = list_visible_teams(require_user(request))
    return make_if_match_check(request, lambda: TeamOutput(rows.get(id=team_id)).data)


class Teams(ApiView):
    @extend_schema(
        operation_id="teams_list",
        summary="List teams",
        parameters=[PageQuery],
        responses=build_page_serializer(TeamOutput),
    )
    def get(self, request: Request) -> Response:
        """List your teams; for staff, all teams."""
        read_query(PageQuery, request)
        return paginate(list_visible_teams(require_user(request)), request, TeamOutput)

    @extend_schema(operation_id="teams_create", summary="Create a team", request=TeamInput, responses={201: TeamOutput})
    @idempotent()
    def post(self, request: Request) -> Create:
        """For staff only."""
        require_staff(request, STAFF_ONLY_MESSAGE)
        body = cast("dict[str, Any]", read_body(TeamInput, request))
        user = require_user(request)

        def create() -> Response:
            team = teams.create_team(**body)
            return respond_created(request, team.id, TeamOutput(list_visible_teams(user).get(id=team.id)).data)

        return create


class TeamDetail(ApiView):
    @extend_schema(
        operation_id="teams_read",
        summary="Read a team",
        parameters=[IF_NONE_MATCH],
        responses={200: TeamOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, team_id: UUID) -> HttpResponse:
        return respond_conditionally(
            request, TeamOutput(get_or_404(list_visible_teams(require_user(request)), team_id)).data
        )

    @extend_schema(
        operation_id="teams_edit",
        summary="Edit a team",
        parameters=[IF_MATCH],
        request=TeamEditInput,
        responses=TeamOutput,
    )
    def patch(self, request: Request, team_id: UUID) -> Response:
        """For staff only. A removed member keeps their jobs, and jobs they shared stay shared until edited."""
        rows = list_visible_teams(require_user(request))
        get_or_404(rows, team_id)
        require_staff(request, STAFF_ONLY_MESSAGE)
        body = cast("dict[str, Any]", read_body(TeamEditInput, request))
        teams.edit_team(team_id, **body, precondition=_make_if_match_check(request, team_id))
        values = TeamOutput(rows.get(id=team_id)).data
        return Response(values, headers={"ETag": compute_etag(values)})

    @extend_schema(
        operation_id="teams_delete", summary="Delete a team", parameters=[IF_MATCH], request=None, responses={204: None}
    )
    def delete(self, request: Request, team_id: UUID) -> Response:
        """For staff only. The team's jobs stay with their owners and are no longer shared."""
        read_body(EmptyInput, request)
        get_or_404(list_visible_teams(require_user(request)), team_id)
        require_staff(request, STAFF_ONLY_MESSAGE)
        teams.delete_team(team_id, precondition=_make_if_match_check(request, team_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
