"""What `doctor` looks at, one thing at a time: each finding says what is, and if that is not well, what to do.

Nothing here changes anything, and a check that cannot be made is a finding of its own, not the end of all.
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

from cli.answers import JsonObject
from cli.app import connect
from cli.config import CHECKOUT, WHAT_TO_DO, is_loopback
from cli.errors import ClientError, CliError
from cli.profiles import path_of
from cli.terminal import shown_time

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Queue, Worker
    from cli.transport import Probe

LARGEST_SKEW_SECONDS = 5.0
SOON = timedelta(days=7)
LEAST_FREE_BYTES = 1024**3
OTHERS = stat.S_IRWXG | stat.S_IRWXO

_REMEDIES = {
    "database": "look at Postgres, and at what DATABASE_URL names",
    "migrations": "run manage.py migrate",
    "redis": "look at Redis, and at what REDIS_URL names; work is late until it is back, not lost",
    "storage": "look at the object store, and at what S3_ENDPOINT_URL and S3_BUCKET name",
    "workers": "start a worker, or look at why none registers",
    "beat": "start a beat, or look at its log: nothing is fired without one",
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


def check_private(paths: Sequence[Path]) -> Iterator[Finding]:
    """A file that holds a token is for its owner alone."""
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & OTHERS:
            remedy = f"chmod 600 {path}, and make a new token if others use this machine"
            yield Finding("config", Verdict.FAILED, f"{path} can be read by others (mode {mode:o})", remedy)
        else:
            yield Finding("config", Verdict.OK, f"{path} is private")


def token_files(environment: Mapping[str, str]) -> list[Path]:
    return [local_var(environment) / "credentials.json", path_of(environment)]


def local_var(environment: Mapping[str, str]) -> Path:
    folder = environment.get("PUNCTUAL_VAR", "").strip()
    return Path(folder) if folder else CHECKOUT / "var"


def check_server(client: Client) -> Iterator[Finding]:
    """All that a server can be asked; nothing more of one that does not answer."""
    try:
        alive = client.probe("healthz")
    except ClientError as error:
        remedy = "start it: ./punctual up" if is_loopback(client.url) else "look at the address, and at the server"
        yield Finding("server", Verdict.FAILED, str(error), remedy)
        return
    if alive.status != HTTPStatus.OK or alive.body.get("status") != "ok":
        found = f"{client.url} answers {alive.status}, but not as a Punctual server does"
        yield Finding("server", Verdict.FAILED, found, "look at the address, and at the proxy before the server")
        return
    yield Finding("server", Verdict.OK, f"{client.url} answers in {alive.seconds * 1000:.0f} ms")
    yield check_clock(alive, datetime.now(UTC))
    yield from check_readiness(client)
    good = check_token(client)
    yield good
    if good.verdict is not Verdict.FAILED:
        try:
            workers, queues = client.workers(limit=1000), client.queues()
        except ClientError as error:
            yield Finding("workers", Verdict.FAILED, str(error), "look at the server's log")
            return
        yield from check_workers(workers)
        yield from check_queues(queues, workers)


def check_clock(alive: Probe, now: datetime) -> Finding:
    try:
        theirs = parsedate_to_datetime(alive.headers.get("date", ""))
    except ValueError:
        return Finding("clock", Verdict.WARNING, "the server does not say what time it has")
    # The header has whole seconds, cut off.
    skew = abs((now - theirs).total_seconds() - 0.5)
    if skew > LARGEST_SKEW_SECONDS:
        found = f"this machine and the server differ by {skew:.0f} s"
        return Finding("clock", Verdict.FAILED, found, "let both take their time from the network (NTP)")
    return Finding("clock", Verdict.OK, "this machine and the server have the same time")


def check_readiness(client: Client) -> Iterator[Finding]:
    try:
        answer = client.probe("readyz")
    except ClientError as error:
        yield Finding("ready", Verdict.FAILED, str(error), "look at the server's log")
        return
    checks = answer.body.get("checks")
    for name, said in checks.items() if isinstance(checks, dict) else ():
        if said == "ok":
            yield Finding(
                str(name), Verdict.OK, "answers" if name not in ("workers", "migrations") else "as it should be"
            )
        else:
            remedy = _REMEDIES.get(str(name), "look at the server's log")
            yield Finding(str(name), Verdict.FAILED, str(said), remedy)


def check_token(client: Client) -> Finding:
    try:
        token = client.own_token()
    except ClientError as error:
        return Finding("token", Verdict.FAILED, str(error), "make a new one: ./punctual login")
    of = f"{token.name} of {token.owner}, scope {token.scope}"
    if token.expires_at is None:
        return Finding("token", Verdict.OK, f"{of}, without an end")
    if datetime.fromisoformat(token.expires_at) - datetime.now(UTC) < SOON:
        remedy = "make a new one before it does: ./punctual login"
        return Finding("token", Verdict.WARNING, f"{of}, expires on {shown_time(token.expires_at)}", remedy)
    return Finding("token", Verdict.OK, f"{of}, expires on {shown_time(token.expires_at)}")


def check_workers(workers: Sequence[Worker]) -> Iterator[Finding]:
    for worker in workers:
        if worker.refusal:
            yield Finding("worker", Verdict.FAILED, f"{worker.name} refuses work: {worker.refusal}", "do what it says")
        elif worker.status == "online":
            yield Finding("worker", Verdict.OK, f"{worker.name} on {worker.host}: {worker.able_to()}")
        elif worker.status == "draining":
            yield Finding("worker", Verdict.WARNING, f"{worker.name} is draining", "start it again for new work")


def check_queues(queues: Sequence[Queue], workers: Sequence[Worker]) -> Iterator[Finding]:
    served = {worker.pool for worker in workers if worker.status == "online" and not worker.refusal}
    for queue in queues:
        if queue.pool not in served:
            found = f"{queue.name} waits for workers of the pool {queue.pool}, and none is online"
            yield Finding("queue", Verdict.FAILED, found, f"start a worker with PUNCTUAL_WORKER_POOL={queue.pool}")
        elif queue.paused:
            advice = f"./punctual queue {queue.name} --resume when it may go on"
            yield Finding("queue", Verdict.WARNING, f"{queue.name} is paused", advice)
        else:
            yield Finding("queue", Verdict.OK, f"{queue.name} is open and served")


def check_disk(var: Path) -> Finding:
    free = shutil.disk_usage(var).free
    found = f"{free / 1024**3:.1f} GB free for {var}"
    if free < LEAST_FREE_BYTES:
        return Finding("disk", Verdict.FAILED, found, "make room: Postgres stops when it cannot write")
    return Finding("disk", Verdict.OK, found)


def examine(environment: Mapping[str, str]) -> Iterator[Finding]:
    yield from check_private(token_files(environment))
    try:
        client = connect()
    except CliError as error:
        yield Finding("config", Verdict.FAILED, str(error), WHAT_TO_DO)
        return
    with client:
        yield from check_server(client)
        var = local_var(environment)
        if is_loopback(client.url) and os.access(var, os.R_OK):
            yield check_disk(var)
