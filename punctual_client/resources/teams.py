"""Teams: users who share jobs with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, text_field, text_list_field
from punctual_client.resources.base import ApiCalls, path_segment


@dataclass(frozen=True)
class Team:
    id: str
    name: str
    members: tuple[str, ...]
    raw: JsonObject = field(repr=False, compare=False)
    tag: str = field(default="", repr=False, compare=False)  # the ETag that an edit can be made conditional on

    @classmethod
    def parse(cls, data: JsonObject, tag: str = "") -> Team:
        return cls(
            id=text_field(data, "id"),
            name=text_field(data, "name"),
            members=text_list_field(data, "members"),
            raw=data,
            tag=tag,
        )


class TeamCalls(ApiCalls):
    def teams(self, *, limit: int = 500) -> list[Team]:
        return [Team.parse(item) for item in self._list("teams", {}, limit)]

    def team(self, team_id: str) -> Team:
        return Team.parse(*self._transport.get_with_etag(f"teams/{path_segment(team_id)}"))

    def create_team(self, name: str, members: Sequence[str]) -> Team:
        return Team.parse(self._transport.send("POST", "teams", {"name": name, "members": list(members)}))

    def edit_team(
        self, team_id: str, *, name: str | None = None, members: Sequence[str] | None = None, tag: str = ""
    ) -> Team:
        """Replace the name or all members; with the `tag` of a team read before, only if no other edit came between."""
        changes: dict[str, object] = {} if name is None else {"name": name}
        if members is not None:
            changes["members"] = list(members)
        return Team.parse(self._transport.send("PATCH", f"teams/{path_segment(team_id)}", changes, tag=tag))

    def delete_team(self, team_id: str) -> None:
        self._transport.send("DELETE", f"teams/{path_segment(team_id)}")
