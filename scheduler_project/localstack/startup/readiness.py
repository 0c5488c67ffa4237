"""Wait until `/readyz` reports that all services are reachable.

The wait fails early when a process keeps dying; a timeout names the failed check.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import httpx

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import LOOPBACK

READY_TIMEOUT_SECONDS = 60.0
CALL_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.2
# Whose log to show when a check fails.
_PROCESS_BY_CHECK = {
    "database": "postgres",
    "redis": "valkey",
    "storage": "seaweedfs",
    "beat": "beat",
    "worker": "worker",
}


def wait_until_web_ready(
    layout: Layout, require_alive: Callable[[], None], *, seconds: float = READY_TIMEOUT_SECONDS
) -> None:
    deadline = time.monotonic() + seconds
    url = f"http://{LOOPBACK}:{layout.web_port}/readyz"
    last: Mapping[str, object] | None = None
    with httpx.Client(timeout=CALL_TIMEOUT_SECONDS, trust_env=False) as client:
        while time.monotonic() < deadline:
            require_alive()
            last = _read_readiness(client, url) or last
            if last is not None and last.get("status") == "ok":
                return
            time.sleep(POLL_SECONDS)
    if last is None:
        raise StackError(f"The web server did not answer within {seconds:.0f} seconds.", log=layout.log("web"))
    failed = list_failed_checks(last)
    process = next((found for name in failed if (found := _find_process(name))), "web")
    raise StackError(
        f"Punctual was not ready within {seconds:.0f} seconds; failed checks: {', '.join(failed) or 'unknown'}.",
        log=layout.log(process),
    )


def list_failed_checks(answer: Mapping[str, object]) -> list[str]:
    """Return the names of failed checks; a check is a string or an object with a status."""
    checks = answer.get("checks")
    if not isinstance(checks, Mapping):
        return []
    failed = []
    for name, result in checks.items():
        status = result.get("status") if isinstance(result, Mapping) else result
        if status not in ("ok", True):
            failed.append(str(name))
    return failed


def _find_process(check: str) -> str | None:
    return next((process for word, process in _PROCESS_BY_CHECK.items() if word in check), None)


def _read_readiness(client: httpx.Client, url: str) -> Mapping[str, object] | None:
    try:
        answer = client.get(url).json()
    except (httpx.HTTPError, ValueError):
        return None
    return answer if isinstance(answer, Mapping) else None
