"""The verbs about who shares jobs with whom."""

from __future__ import annotations

from collections.abc import Sequence

from cli.calls import Calls, segment
from cli.records import Team


class TeamCalls(Calls):
    def teams(self, *, limit: int = 500) -> list[Team]:
        return [Team.parse(item) for item in self._listing("teams", {}, limit)]

    def team(self, team_id: str) -> Team:
        return Team.parse(*self._transport.get_tagged(f"teams/{segment(team_id)}"))

    def create_team(self, name: str, members: Sequence[str]) -> Team:
        return Team.parse(self._transport.send("POST", "teams", {"name": name, "members": list(members)}))

    def edit_team(
        self, team_id: str, *, name: str | None = None, members: Sequence[str] | None = None, tag: str = ""
    ) -> Team:
        """`members` is the whole list; with the `tag` of the team that it was read from, no other edit is undone."""
        changes: dict[str, object] = {} if name is None else {"name": name}
        if members is not None:
            changes["members"] = list(members)
        return Team.parse(self._transport.send("PATCH", f"teams/{segment(team_id)}", changes, tag=tag))

    def delete_team(self, team_id: str) -> None:
        self._transport.send("DELETE", f"teams/{segment(team_id)}")
