"""Hooks that shorten the long polls of schemathesis."""

from __future__ import annotations

from typing import Any

import schemathesis

LONGEST_WAIT_SECONDS = 1


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, object]) -> None:
    for given, name in ((case.query, "wait"), (case.body, "wait_seconds")):
        if isinstance(given, dict):
            asked = given.get(name)
            # Only what is a wait at all: what is wrong about it stays wrong.
            if isinstance(asked, int | float) and not isinstance(asked, bool) and 1 < asked <= 60:
                given[name] = LONGEST_WAIT_SECONDS
    # An attempt that there is ends soon; an execution that no worker fits would be followed for a minute.
    if isinstance(case.query, dict) and "attempt" not in case.query and case.query.get("follow") in (True, "true"):
        del case.query["follow"]
