"""What an operation says that its view does not: the area it belongs to, and the scope of token that it needs.

The scopes are those of the table that requests are refused by, so that the schema cannot promise another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from jobs.api.permissions import NEEDED, OPEN, PREFIX, WORKER, Scopes, scopes_needed
from jobs.api.schema import BearerTokenScheme

SESSION = "cookieAuth"


@dataclass(frozen=True)
class Area:
    name: str
    description: str
    roots: tuple[str, ...]  # the first words of its addresses


WORKERS_OWN = Area(
    "Worker protocol", "What a worker on another machine says. `./punctual worker` does; you need it to write one.", ()
)
# In the order in which they are shown.
AREAS = (
    Area("Jobs", "What runs, when, and with what.", ("jobs", "schedules", "backfills")),
    Area("Executions", "Every run of a job: how it stands, why it waits, what it wrote.", ("executions", "logs")),
    Area("Dead letters", "What failed for good, until somebody redrives or dismisses it.", ("dead-letters",)),
    Area("Calendars", "Named sets of dates on which schedules do not fire.", ("calendars",)),
    Area("Artifacts", "Programs and files, uploaded straight to the object store.", ("artifacts",)),
    Area("Secrets", "Values that jobs are given, written here and never read back.", ("secrets",)),
    Area("Webhooks", "Who is told that executions have ended, and what became of telling them.", ("webhooks",)),
    Area("Teams", "Who shares jobs with whom.", ("teams",)),
    Area("Workers and queues", "Where work runs, and where it waits.", ("workers", "queues")),
    Area("Audit", "Who changed what, and whether every instant was accounted for.", ("audit",)),
    Area("Account", "Tokens, and what you use.", ("login", "tokens", "usage")),
    WORKERS_OWN,
)
_AREA_OF = {root: area for area in AREAS for root in area.roots}
# As the schema writes addresses.
_ROUTES = {re.sub(r"<\w+:(\w+)>", r"{\1}", route): route for route in NEEDED}


def describe_operations(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """drf-spectacular's hook."""
    schemes = result["components"]["securitySchemes"]
    schemes[SESSION]["description"] = "A browser that has logged in to the admin sends it by itself."
    result["tags"] = [{"name": area.name, "description": area.description} for area in AREAS]
    for path, operations in result["paths"].items():
        address = path.removeprefix(f"/{PREFIX}")
        for method, operation in operations.items():
            needed = scopes_needed(_ROUTES.get(address, address), method.upper())
            area = WORKERS_OWN if needed == WORKER else _AREA_OF.get(address.partition("/")[0])
            if area is not None:
                operation["tags"] = [area.name]
            if needed is not None:
                told = (operation.get("description"), _in_words(needed))
                operation["description"] = "\n\n".join(filter(None, told))
                operation["security"] = _security(needed)
            for status, response in operation["responses"].items():
                response["description"] = response["description"] or HTTPStatus(int(status)).phrase
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    thing = parameter["name"].removesuffix("_id")
                    parameter.setdefault("description", f"The id of the {thing}.")
    return result


def _in_words(needed: Scopes) -> str:
    if needed == OPEN:
        return "Open: needs no token."
    return f"Needs a token of scope {' or '.join(f'`{scope}`' for scope in needed)}."


def _security(needed: Scopes) -> list[dict[str, list[str]]]:
    """Each of them will do; what a token must be good for stands where OpenAPI 3.1 has roles."""
    tokens = [{BearerTokenScheme.name: [scope.value]} for scope in needed]
    # A browser's session is a person's, and never a worker's.
    return tokens if needed in (OPEN, WORKER) else [*tokens, {SESSION: []}]
