"""The checks of `doctor`: each yields findings with a verdict and, unless it is OK, a remedy.

Checks only read. A check that cannot be carried out is a failed finding and does not end the others.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from punctual_cli.app import connect
from punctual_cli.output.terminal import format_time
from punctual_client.config import CHECKOUT_DIRECTORY, CONFIGURE_HINT, is_loopback
from punctual_client.errors import IN_CHECKOUT, PROGRAM, ApiError, PunctualError
from punctual_client.json_fields import JsonObject
from punctual_client.profiles import profiles_path

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.queues import Queue
    from punctual_client.resources.workers import Worker
    from punctual_client.transport import ProbeResult

MAX_CLOCK_SKEW_SECONDS = 5.0
EXPIRY_WARNING_PERIOD = timedelta(days=7)
MIN_FREE_BYTES = 1024**3
GROUP_AND_OTHER_BITS = stat.S_IRWXG | stat.S_IRWXO

_REMEDIES = {
    "database": "check Postgres and DATABASE_URL",
    "migrations": "run manage.py migrate",
    "redis": "check Redis and REDIS_URL; until it is back work is delayed, not lost",
    "storage": "check the object store, S3_ENDPOINT_URL and S3_BUCKET",
    "workers": "start a worker, or find out why none registers",
    "beat": "start a beat, or check its log: nothing fires without one",
}


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    name: str
    verdict: Verdict
    found: str
    remedy: str = ""

    @property
    def raw(self) -> JsonObject:
        return {"check": self.name, "verdict": self.verdict.value, "found": self.found, "do": self.remedy or None}


def check_token_file_modes(paths: Sequence[Path]) -> Iterator[Finding]:
    """Check that files with tokens are readable only by their owner."""
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & GROUP_AND_OTHER_BITS:
            remedy = f"chmod 600 {path}, and create a new token if others use this machine"
            yield Finding("config", Verdict.FAILED, f"{path} can be read by others (mode {mode:o})", remedy)
        else:
            yield Finding("config", Verdict.OK, f"{path} is private")


def token_file_paths(environment: Mapping[str, str]) -> list[Path]:
    return [local_var_directory(environment) / "credentials.json", profiles_path(environment)]


def local_var_directory(environment: Mapping[str, str]) -> Path:
    folder = environment.get("PUNCTUAL_VAR", "").strip()
    return Path(folder) if folder else CHECKOUT_DIRECTORY / "var"


def check_server(client: Client) -> Iterator[Finding]:
    """Check a server; if it does not answer, nothing else of it."""
    try:
        alive = client.probe("healthz")
    except ApiError as error:
        remedy = (
            f"start it: {PROGRAM} up" if IN_CHECKOUT and is_loopback(client.url) else "check the address and the server"
        )
        yield Finding("server", Verdict.FAILED, str(error), remedy)
        return
    if alive.status != HTTPStatus.OK or alive.body.get("status") != "ok":
        found = f"{client.url} answers {alive.status}, but not as a Punctual server does"
        yield Finding("server", Verdict.FAILED, found, "check the address, and the proxy in front of the server")
        return
    yield Finding("server", Verdict.OK, f"{client.url} answers in {alive.seconds * 1000:.0f} ms")
    yield check_clock(alive, datetime.now(UTC))
    yield from check_readiness(client)
    token_finding = check_token(client)
    yield token_finding
    if token_finding.verdict is not Verdict.FAILED:
        try:
            workers, queues = client.workers(limit=1000), client.queues()
        except ApiError as error:
            yield Finding("workers", Verdict.FAILED, str(error), "check the server's log")
            return
        yield from check_workers(workers)
        yield from check_queues(queues, workers)


def check_clock(alive: ProbeResult, now: datetime) -> Finding:
    try:
        server_time = parsedate_to_datetime(alive.headers.get("date", ""))
    except ValueError:
        return Finding("clock", Verdict.WARNING, "the server sends no Date header")
    # The header is truncated to whole seconds.
    skew = abs((now - server_time).total_seconds() - 0.5)
    if skew > MAX_CLOCK_SKEW_SECONDS:
        found = f"the clocks of this machine and the server differ by {skew:.0f} s"
        return Finding("clock", Verdict.FAILED, found, "synchronise both with NTP")
    return Finding("clock", Verdict.OK, "the clocks of this machine and the server agree")


def check_readiness(client: Client) -> Iterator[Finding]:
    try:
        answer = client.probe("readyz")
    except ApiError as error:
        yield Finding("ready", Verdict.FAILED, str(error), "check the server's log")
        return
    checks = answer.body.get("checks")
    for name, result in checks.items() if isinstance(checks, dict) else ():
        if result == "ok":
            yield Finding(str(name), Verdict.OK, "answers" if name not in ("workers", "migrations") else "in order")
        else:
            remedy = _REMEDIES.get(str(name), "check the server's log")
            yield Finding(str(name), Verdict.FAILED, str(result), remedy)


def check_token(client: Client) -> Finding:
    try:
        token = client.own_token()
    except ApiError as error:
        return Finding("token", Verdict.FAILED, str(error), f"get a new one: {PROGRAM} login")
    description = f"{token.name} of {token.owner}, scope {token.scope}"
    if token.expires_at is None:
        return Finding("token", Verdict.OK, f"{description}, never expires")
    if datetime.fromisoformat(token.expires_at) - datetime.now(UTC) < EXPIRY_WARNING_PERIOD:
        remedy = f"get a new one before that: {PROGRAM} login"
        return Finding("token", Verdict.WARNING, f"{description}, expires on {format_time(token.expires_at)}", remedy)
    return Finding("token", Verdict.OK, f"{description}, expires on {format_time(token.expires_at)}")


def check_workers(workers: Sequence[Worker]) -> Iterator[Finding]:
    for worker in workers:
        if worker.refusal:
            yield Finding(
                "worker", Verdict.FAILED, f"{worker.name} refuses work: {worker.refusal}", "follow its message"
            )
        elif worker.status == "online":
            yield Finding("worker", Verdict.OK, f"{worker.name} on {worker.host}: {worker.capabilities_description}")
        elif worker.status == "draining":
            yield Finding("worker", Verdict.WARNING, f"{worker.name} is draining", "restart it to take new work")


def check_queues(queues: Sequence[Queue], workers: Sequence[Worker]) -> Iterator[Finding]:
    served = {worker.pool for worker in workers if worker.status == "online" and not worker.refusal}
    for queue in queues:
        if queue.pool not in served:
            found = f"{queue.name} needs workers of the pool {queue.pool}, and none is online"
            yield Finding("queue", Verdict.FAILED, found, f"start a worker with PUNCTUAL_WORKER_POOL={queue.pool}")
        elif queue.paused:
            advice = f"{PROGRAM} queue {queue.name} --resume resumes it"
            yield Finding("queue", Verdict.WARNING, f"{queue.name} is paused", advice)
        else:
            yield Finding("queue", Verdict.OK, f"{queue.name} is open and served")


def check_disk(var: Path) -> Finding:
    free = shutil.disk_usage(var).free
    found = f"{free / 1024**3:.1f} GB free for {var}"
    if free < MIN_FREE_BYTES:
        return Finding("disk", Verdict.FAILED, found, "free some space: Postgres stops when it cannot write")
    return Finding("disk", Verdict.OK, found)


def run_checks(environment: Mapping[str, str]) -> Iterator[Finding]:
    yield from check_token_file_modes(token_file_paths(environment))
    try:
        client = connect()
    except PunctualError as error:
        yield Finding("config", Verdict.FAILED, str(error), CONFIGURE_HINT)
        return
    with client:
        yield from check_server(client)
        var = local_var_directory(environment)
        if is_loopback(client.url) and os.access(var, os.R_OK):
            yield check_disk(var)
