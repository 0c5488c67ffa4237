"""What the server answers of changes, as frozen values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from cli.answers import JsonObject, as_object, text


@dataclass(frozen=True)
class Change:
    """Who did what to what; of before and after only what differs."""

    at: str
    actor: str
    action: str
    object_id: str
    object_name: str
    before: JsonObject
    after: JsonObject
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Change:
        return cls(
            at=text(data, "at"),
            actor=text(data, "actor"),
            action=text(data, "action"),
            object_id=text(data, "object_id"),
            object_name=text(data, "object_name"),
            before=as_object(data.get("before")),
            after=as_object(data.get("after")),
            raw=data,
        )

    def differences(self) -> str:
        """In one line: `priority: 5 → 9, note: broken`."""
        names = [*self.before, *(name for name in self.after if name not in self.before)]
        return ", ".join(f"{name}: {self._difference(name)}" for name in names)

    def _difference(self, name: str) -> str:
        sides = [_word(values[name]) for values in (self.before, self.after) if name in values]
        return f"{sides[0]} → (gone)" if name not in self.after else " → ".join(sides)


def _word(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
