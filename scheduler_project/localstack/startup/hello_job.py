"""Run one real job through the public API, with only a URL and the token, as a user would."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from jobs.domain.states import TERMINAL, State
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import LOOPBACK

HELLO_SCRIPT = 'echo "Hello from Punctual: this ran in a sandbox, on $(uname -s) $(uname -r)."'
JOB_TIMEOUT_SECONDS = 60.0
CALL_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.1
UNAVAILABLE_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True)
class HelloResult:
    status: str
    exit_code: int | None
    log: str


def run_hello_job(
    layout: Layout, token: str, require_alive: Callable[[], None], *, seconds: float = JOB_TIMEOUT_SECONDS
) -> HelloResult:
    with httpx.Client(
        base_url=f"http://{LOOPBACK}:{layout.web_port}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        timeout=CALL_TIMEOUT_SECONDS,
        trust_env=False,
    ) as client:
        api = _ApiClient(client, layout)
        job = api.json("POST", "/jobs", body={"name": "hello", "runtime": "bash", "script": HELLO_SCRIPT})
        execution = _wait_for_end(api, str(job["id"]), require_alive, seconds)
        log = api.request("GET", f"/executions/{execution['id']}/logs").text
        _delete_previous_jobs(api, job)
    exit_code = execution.get("exit_code")
    return HelloResult(
        status=str(execution["status"]), exit_code=exit_code if isinstance(exit_code, int) else None, log=log
    )


def _delete_previous_jobs(api: _ApiClient, job: Mapping[str, object]) -> None:
    """Delete the hello jobs of earlier starts, recognised by owner and program; their executions stay."""
    found = api.json("GET", "/jobs?name=hello").get("results")
    for each in found if isinstance(found, list) else []:
        if each["id"] != job["id"] and (each["owner"], each["artifact"]) == (job["owner"], job["artifact"]):
            api.request("DELETE", f"/jobs/{each['id']}")


def _wait_for_end(api: _ApiClient, job: str, require_alive: Callable[[], None], seconds: float) -> Mapping[str, object]:
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
                _require_accepting_worker(api)
        require_alive()
        time.sleep(POLL_SECONDS)
    raise StackError(
        f"The hello job did not finish within {seconds:.0f} seconds; it is {status}.",
        log=api.layout.log("worker"),
    )


def _require_accepting_worker(api: _ApiClient) -> None:
    """Fail at once if every worker refuses work, because its sandbox failed its test."""
    workers = api.json("GET", "/workers?status=online").get("results")
    refusals = [str(worker["refusal"]) for worker in workers] if isinstance(workers, list) else []
    if refusals and all(refusals):
        raise StackError(f"The worker refuses work. {refusals[0]}")


class _ApiClient:
    def __init__(self, client: httpx.Client, layout: Layout) -> None:
        self.layout = layout
        self._client = client

    def request(self, method: str, path: str, body: object = None) -> httpx.Response:
        deadline = time.monotonic() + UNAVAILABLE_TIMEOUT_SECONDS
        try:
            response = self._client.request(method, path, json=body)
            # A new object store answers a moment before it can store.
            while response.status_code == httpx.codes.SERVICE_UNAVAILABLE and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                response = self._client.request(method, path, json=body)
            response.raise_for_status()
        except httpx.HTTPStatusError as error:
            raise StackError(
                f"The API answered {method} {path} with {error.response.status_code}: {error.response.text[:300]}",
                log=self.layout.log("web"),
            ) from None
        except httpx.HTTPError as error:
            raise StackError(f"The API did not answer {method} {path} ({error}).", log=self.layout.log("web")) from None
        return response

    def json(self, method: str, path: str, body: object = None) -> Mapping[str, object]:
        answer = self.request(method, path, body).json()
        if not isinstance(answer, dict):
            raise StackError(f"The API answered {method} {path} with something other than a JSON object.")
        return answer
