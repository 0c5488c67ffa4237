"""/teams: who shares jobs with whom. Members look; staff makes, fills and dissolves them."""

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

from jobs import conf
from jobs.api.conditional import IF_MATCH, IF_NONE_MATCH, NOT_MODIFIED, show, tag_of, unless_edited
from jobs.api.fields import BoundedListField, StrictSerializer, TextField
from jobs.api.job_edit_input import WithoutDefaults
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.repeating import Create, repeatable
from jobs.api.views import ApiView, check_staff, find, page, read_body, read_query, user_of
from jobs.models import Team
from jobs.querysets.visibility import teams_of
from jobs.services import teams

# Nothing of a team changes without an edit.
MOVING = ()
FOR_STAFF = "Only staff may make, change or delete a team."


class TeamInput(StrictSerializer):
    name = TextField(max_length=63, help_text="Lower-case letters, digits, `_`, `.` and `-`; no other team's.")
    members = BoundedListField(
        child=TextField(max_length=150),
        default=list,
        max_length=conf.MAX_MEMBERS_PER_TEAM,
        help_text="Names of users.",
    )


class TeamEditInput(WithoutDefaults, TeamInput):
    """What is left out stays as it is; `members` is the whole list."""


class TeamOutput(serializers.ModelSerializer[Team]):
    members = serializers.SerializerMethodField()

    class Meta:
        model = Team
        fields = ["id", "name", "members", "created_at", "updated_at"]
        read_only_fields = fields

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_members(self, team: Team) -> list[str]:
        return sorted(membership.user.username for membership in team.memberships.all())


def teams_seen_by(user: User) -> QuerySet[Team]:
    rows = Team.objects.prefetch_related("memberships__user")
    return rows if user.is_staff else rows.filter(id__in=teams_of(user))


def _unless_edited(request: Request, team_id: UUID) -> Callable[[], None]:
    rows = teams_seen_by(user_of(request))
    return unless_edited(request, lambda: TeamOutput(rows.get(id=team_id)).data, moving=MOVING)


class Teams(ApiView):
    @extend_schema(
        operation_id="teams_list", summary="List teams", parameters=[PageQuery], responses=page_of(TeamOutput)
    )
    def get(self, request: Request) -> Response:
        """Those that you are a member of; for staff, all."""
        read_query(PageQuery, request)
        return page(teams_seen_by(user_of(request)), request, TeamOutput)

    @extend_schema(operation_id="teams_create", summary="Create a team", request=TeamInput, responses={201: TeamOutput})
    @repeatable()
    def post(self, request: Request) -> Create:
        """For staff."""
        check_staff(request, FOR_STAFF)
        body = cast("dict[str, Any]", read_body(TeamInput, request))
        user = user_of(request)

        def create() -> Response:
            team = teams.create_team(**body)
            return Response(
                TeamOutput(teams_seen_by(user).get(id=team.id)).data,
                status=status.HTTP_201_CREATED,
                headers={"Location": f"{request.path}/{team.id}"},
            )

        return create


class TeamDetail(ApiView):
    @extend_schema(
        operation_id="teams_read",
        summary="Read a team",
        parameters=[IF_NONE_MATCH],
        responses={200: TeamOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, team_id: UUID) -> HttpResponse:
        return show(request, TeamOutput(find(teams_seen_by(user_of(request)), team_id)).data, moving=MOVING)

    @extend_schema(
        operation_id="teams_edit",
        summary="Edit a team",
        parameters=[IF_MATCH],
        request=TeamEditInput,
        responses=TeamOutput,
    )
    def patch(self, request: Request, team_id: UUID) -> Response:
        """For staff. Who is taken out keeps their jobs; what they shared stays shared until it is edited."""
        rows = teams_seen_by(user_of(request))
        find(rows, team_id)
        check_staff(request, FOR_STAFF)
        body = cast("dict[str, Any]", read_body(TeamEditInput, request))
        teams.edit_team(team_id, **body, when_locked=_unless_edited(request, team_id))
        shown = TeamOutput(rows.get(id=team_id)).data
        return Response(shown, headers={"ETag": tag_of(shown, moving=MOVING)})

    @extend_schema(
        operation_id="teams_delete", summary="Delete a team", parameters=[IF_MATCH], request=None, responses={204: None}
    )
    def delete(self, request: Request, team_id: UUID) -> Response:
        """For staff. Its jobs are their owners' alone again."""
        read_body(NoInput, request)
        find(teams_seen_by(user_of(request)), team_id)
        check_staff(request, FOR_STAFF)
        teams.delete_team(team_id, when_locked=_unless_edited(request, team_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
