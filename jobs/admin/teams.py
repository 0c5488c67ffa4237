"""Editable page of teams; the services write them, as for the API."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AutocompleteSelectMultiple
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from jobs.access.teams import create_team, delete_team, edit_team
from jobs.admin.base import ServiceWrittenAdmin
from jobs.models import Membership, Team


class TeamForm(forms.ModelForm):  # type: ignore[type-arg]  # it is not generic at run time
    # Not named `members`: Django's admin cannot edit a relation with a through table.
    people = forms.ModelMultipleChoiceField(
        User.objects.all(),
        required=False,
        label="Members",
        widget=AutocompleteSelectMultiple(Membership._meta.get_field("user"), admin.site),
        help_text="Members may read, run, pause and resume the jobs that are shared with the team.",
    )

    class Meta:
        model = Team
        fields = ["name"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:
            self.initial["people"] = list(self.instance.members.all())


@admin.register(Team)
class TeamAdmin(ServiceWrittenAdmin[Team]):
    form = TeamForm
    list_display = ["name", "number_of_members", "created_at"]
    search_fields = ["name", "=id"]
    ordering = ["name"]
    fields = ["name", "people"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Team]:
        return super().get_queryset(request).annotate(count=Count("memberships"))

    @admin.display(description="members")
    def number_of_members(self, team: Team) -> int:
        count: int = vars(team)["count"]
        return count

    def save_model(self, request: HttpRequest, obj: Team, form: forms.ModelForm[Team], change: bool) -> None:
        members = [user.username for user in form.cleaned_data["people"]]
        if change:
            edit_team(obj.id, name=obj.name, members=members)
        else:
            obj.id = create_team(name=obj.name, members=members).id

    def delete_model(self, request: HttpRequest, obj: Team) -> None:
        delete_team(obj.id)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Team]) -> None:
        with transaction.atomic():
            for team in queryset:
                delete_team(team.id)
