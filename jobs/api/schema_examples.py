"""Where examples stand in the schema: at every body that is sent, and at every JSON that is answered with."""

from __future__ import annotations

from typing import Any

from jobs.api.examples import OUTPUTS, REQUESTS

JSON = "application/json"


def add_examples(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """drf-spectacular's hook."""
    schemas = result["components"]["schemas"]
    for operations in result["paths"].values():
        for operation in operations.values():
            sent = operation.get("requestBody", {}).get("content", {}).get(JSON)
            if sent is not None and (named := REQUESTS.get(_name(sent["schema"]))) is not None:
                sent["examples"] = {name: {"value": value} for name, value in named.items()}
            for response in operation["responses"].values():
                answered = response.get("content", {}).get(JSON)
                if answered is not None and (example := _answer(_name(answered["schema"]), schemas)) is not None:
                    answered["example"] = example
    return result


def _answer(name: str, schemas: dict[str, Any]) -> dict[str, Any] | None:
    if name in OUTPUTS:
        return OUTPUTS[name]
    properties = schemas.get(name, {}).get("properties", {})
    row = OUTPUTS.get(_name(properties.get("results", {}).get("items", {})))
    if row is None:
        return None
    return {"results": [row], "next": None} if "next" in properties else {"results": [row]}


def _name(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
