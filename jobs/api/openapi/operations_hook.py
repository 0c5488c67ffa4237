"""drf-spectacular hook that adds tags, required scopes and security to every operation.

Scopes come from the table that enforces them, so the schema cannot disagree with the server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from jobs.api.framework.permissions import API_PREFIX, PUBLIC, REQUIRED_SCOPES, WORKER, Scopes, find_required_scopes
from jobs.api.openapi.hooks import BearerTokenScheme

SESSION_SCHEME = "cookieAuth"


@dataclass(frozen=True)
class Tag:
    name: str
    description: str
    roots: tuple[str, ...]  # first path segments


WORKER_PROTOCOL = Tag(
    "Worker protocol",
    "Operations that workers on other machines call. Needed only to write your own worker; `./punctual worker` speaks"
    " this protocol.",
    (),
)
# In display order.
TAGS = (
    Tag("Jobs", "Programs with their schedules, dependencies and limits.", ("jobs", "schedules", "backfills")),
    Tag("Executions", "Runs of jobs: status, attempts, logs and outputs.", ("executions", "logs")),
    Tag("Dead letters", "Executions that failed for good, to redrive or dismiss.", ("dead-letters",)),
    Tag("Calendars", "Named sets of dates on which schedules do not fire.", ("calendars",)),
    Tag("Artifacts", "Programs and files, uploaded directly to the object store.", ("artifacts",)),
    Tag("Secrets", "Encrypted, write-only values for jobs.", ("secrets",)),
    Tag("Webhooks", "HTTP notifications about finished executions.", ("webhooks",)),
    Tag("Teams", "Groups of users who share jobs.", ("teams",)),
    Tag("Workers and queues", "Machines that run jobs, and the queues they serve.", ("workers", "queues")),
    Tag("Audit", "Log of changes, and checks that every instant fired and every limit held.", ("audit",)),
    Tag("Account", "Login, API tokens and usage.", ("login", "tokens", "usage")),
    WORKER_PROTOCOL,
)
_TAG_BY_ROOT = {root: tag for tag in TAGS for root in tag.roots}
# Keys in the syntax of the schema: jobs/{job_id}.
_ROUTE_BY_PATH = {re.sub(r"<\w+:(\w+)>", r"{\1}", route): route for route in REQUIRED_SCOPES}


def describe_operations(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Add tags, scopes, security and missing descriptions to every operation."""
    schemes = result["components"]["securitySchemes"]
    schemes[SESSION_SCHEME]["description"] = "The session cookie of a browser that has logged in."
    result["tags"] = [{"name": tag.name, "description": tag.description} for tag in TAGS]
    for path, operations in result["paths"].items():
        route = path.removeprefix(f"/{API_PREFIX}")
        for method, operation in operations.items():
            required = find_required_scopes(_ROUTE_BY_PATH.get(route, route), method.upper())
            tag = WORKER_PROTOCOL if required == WORKER else _TAG_BY_ROOT.get(route.partition("/")[0])
            if tag is not None:
                operation["tags"] = [tag.name]
            if required is not None:
                paragraphs = (operation.get("description"), _describe_scopes(required))
                operation["description"] = "\n\n".join(filter(None, paragraphs))
                operation["security"] = _build_security(required)
            for status, response in operation["responses"].items():
                response["description"] = response["description"] or HTTPStatus(int(status)).phrase
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    kind = parameter["name"].removesuffix("_id")
                    parameter.setdefault("description", f"Id of the {kind}.")
    return result


def _describe_scopes(required: Scopes) -> str:
    if required == PUBLIC:
        return "Public: needs no token."
    return f"Needs a token of scope {' or '.join(f'`{scope}`' for scope in required)}."


def _build_security(required: Scopes) -> list[dict[str, list[str]]]:
    """Return the alternatives; a scope is written where OpenAPI 3.1 allows roles."""
    tokens = [{BearerTokenScheme.name: [scope.value]} for scope in required]
    # Workers have no browser sessions.
    return tokens if required in (PUBLIC, WORKER) else [*tokens, {SESSION_SCHEME: []}]
