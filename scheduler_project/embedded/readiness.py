"""Waits until the web server says that everything it needs is there.

The wait ends early when a process keeps dying, and otherwise names the check that failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import httpx

from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.ports import LOOPBACK
from scheduler_project.embedded.problems import StackProblem

READY_SECONDS = 60.0
CALL_SECONDS = 10.0
POLL_SECONDS = 0.2
# Which process to read about when a check of that name fails.
_CULPRITS = {
    "database": "postgres",
    "redis": "valkey",
    "storage": "seaweedfs",
    "beat": "beat",
    "worker": "worker",
}


def wait_until_ready(layout: Layout, require_alive: Callable[[], None], *, seconds: float = READY_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    url = f"http://{LOOPBACK}:{layout.web_port}/readyz"
    last: Mapping[str, object] | None = None
    with httpx.Client(timeout=CALL_SECONDS, trust_env=False) as client:
        while time.monotonic() < deadline:
            require_alive()
            last = _ask(client, url) or last
            if last is not None and last.get("status") == "ok":
                return
            time.sleep(POLL_SECONDS)
    if last is None:
        raise StackProblem(f"The web server did not answer within {seconds:.0f} seconds.", log=layout.log("web"))
    failed = failed_checks(last)
    culprit = next((process for name in failed if (process := _culprit(name))), "web")
    raise StackProblem(
        f"Punctual was not ready within {seconds:.0f} seconds; what failed: {', '.join(failed) or 'unknown'}.",
        log=layout.log(culprit),
    )


def failed_checks(answer: Mapping[str, object]) -> list[str]:
    """The names of the checks that are not fine; a check is a word, or an object with a status."""
    checks = answer.get("checks")
    if not isinstance(checks, Mapping):
        return []
    failed = []
    for name, result in checks.items():
        status = result.get("status") if isinstance(result, Mapping) else result
        if status not in ("ok", True):
            failed.append(str(name))
    return failed


def _culprit(check: str) -> str | None:
    return next((process for word, process in _CULPRITS.items() if word in check), None)


def _ask(client: httpx.Client, url: str) -> Mapping[str, object] | None:
    try:
        answer = client.get(url).json()
    except (httpx.HTTPError, ValueError):
        return None
    return answer if isinstance(answer, Mapping) else None
