"""One real job through the public API: what it prints was run by a worker, in a sandbox.

It uses nothing but HTTP and the token, so it proves what a user can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from jobs.states import TERMINAL, State
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.ports import LOOPBACK
from scheduler_project.embedded.problems import StackProblem

SCRIPT = 'echo "Hello from Punctual: this ran in a sandbox, on $(uname -s) $(uname -r)."'
END_SECONDS = 60.0
CALL_SECONDS = 10.0
POLL_SECONDS = 0.1
UNAVAILABLE_SECONDS = 15.0


@dataclass(frozen=True)
class Greeting:
    status: str
    exit_code: int | None
    log: str


def run_hello_job(
    layout: Layout, token: str, require_alive: Callable[[], None], *, seconds: float = END_SECONDS
) -> Greeting:
    with httpx.Client(
        base_url=f"http://{LOOPBACK}:{layout.web_port}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        timeout=CALL_SECONDS,
        trust_env=False,
    ) as client:
        api = _Api(client, layout)
        job = api.json("POST", "/jobs", body={"name": "hello", "runtime": "bash", "script": SCRIPT})
        execution = _wait_for_end(api, str(job["id"]), require_alive, seconds)
        log = api.request("GET", f"/executions/{execution['id']}/logs").text
        _delete_former(api, job)
    exit_code = execution.get("exit_code")
    return Greeting(
        status=str(execution["status"]), exit_code=exit_code if isinstance(exit_code, int) else None, log=log
    )


def _delete_former(api: _Api, job: Mapping[str, object]) -> None:
    """Those of former starts, known by their program: somebody may have a job of that name. Their executions stay."""
    found = api.json("GET", "/jobs?name=hello").get("results")
    for each in found if isinstance(found, list) else []:
        if each["id"] != job["id"] and (each["owner"], each["artifact"]) == (job["owner"], job["artifact"]):
            api.request("DELETE", f"/jobs/{each['id']}")


def _wait_for_end(api: _Api, job: str, require_alive: Callable[[], None], seconds: float) -> Mapping[str, object]:
    deadline = time.monotonic() + seconds
    status = "not fired"
    while time.monotonic() < deadline:
        results = api.json("GET", f"/executions?job_id={job}").get("results")
        if isinstance(results, list) and results:
            execution = results[0]
            status = str(execution["status"])
            if status in TERMINAL:
                return dict(execution)
            if status == State.READY:
                _require_willing(api)
        require_alive()
        time.sleep(POLL_SECONDS)
    raise StackProblem(
        f"The hello job did not end within {seconds:.0f} seconds; it is {status}.",
        log=api.layout.log("worker"),
    )


def _require_willing(api: _Api) -> None:
    """A worker whose sandbox failed its test will not run it however long one waits."""
    workers = api.json("GET", "/workers?status=online").get("results")
    refusals = [str(worker["refusal"]) for worker in workers] if isinstance(workers, list) else []
    if refusals and all(refusals):
        raise StackProblem(f"The worker refuses work. {refusals[0]}")


class _Api:
    def __init__(self, client: httpx.Client, layout: Layout) -> None:
        self.layout = layout
        self._client = client

    def request(self, method: str, path: str, body: object = None) -> httpx.Response:
        deadline = time.monotonic() + UNAVAILABLE_SECONDS
        try:
            response = self._client.request(method, path, json=body)
            # Just started, the object store answers a moment before it can also store.
            while response.status_code == httpx.codes.SERVICE_UNAVAILABLE and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                response = self._client.request(method, path, json=body)
            response.raise_for_status()
        except httpx.HTTPStatusError as error:
            raise StackProblem(
                f"The API answered {method} {path} with {error.response.status_code}: {error.response.text[:300]}",
                log=self.layout.log("web"),
            ) from None
        except httpx.HTTPError as error:
            raise StackProblem(
                f"The API did not answer {method} {path} ({error}).", log=self.layout.log("web")
            ) from None
        return response

    def json(self, method: str, path: str, body: object = None) -> Mapping[str, object]:
        answer = self.request(method, path, body).json()
        if not isinstance(answer, dict):
            raise StackProblem(f"The API gave an answer to {method} {path} that makes no sense.")
        return answer
