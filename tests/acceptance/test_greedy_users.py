"""A user who floods logs, storage or audits is bounded and does not affect others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest

from tests.support.stack import Stack
from tests.support.waiting import wait_for

# Lines alternate between the streams, each written by itself, as quickly as possible.
CHATTER = """
import os, time
end = time.monotonic() + {seconds}
n = 0
while time.monotonic() < end:
    os.write(1, b"out %d\\n" % n)
    os.write(2, b"err %d\\n" % n)
    n += 1
    {pause}
"""
MAKE_USER = """
from django.contrib.auth.models import User
from jobs.models import OwnerQuota, TokenScope
from jobs.access.tokens import generate_secret, store_token
user = User.objects.create_user("{name}")
OwnerQuota.objects.create(owner=user, storage_mb={storage_mb}, requests_per_minute=0)
secret = generate_secret()
store_token(owner=user, name="test", secret=secret, scope=TokenScope.ADMIN)
print("token:", secret)
"""
# A cron of every minute, said to be in force for twenty years: its audit never ends by itself.
ANCIENT = (
    "UPDATE jobs_scheduleversion v SET from_at = now() - interval '20 years', starts_at = now() - interval '20 years'"
    " FROM jobs_schedule s WHERE s.id = v.schedule_id AND s.job_id = %s"
)


class User:
    def __init__(self, stack: Stack, name: str, *, storage_mb: int) -> None:
        made = stack.command("stack", "manage", "shell", "-c", MAKE_USER.format(name=name, storage_mb=storage_mb))
        token = made.stdout.split("token: ")[1].split()[0]
        self.api = httpx.Client(
            base_url=f"{stack.url.rstrip('/')}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=30
        )

    def submit(self, **body: Any) -> dict[str, Any]:
        answer = self.api.post("/jobs", json=body)
        assert answer.status_code == 201, answer.text
        job: dict[str, Any] = answer.json()
        return job

    def chatter(self, name: str, *, seconds: float, pause: str = "pass") -> dict[str, Any]:
        return self.submit(name=name, runtime="python", script=CHATTER.format(seconds=seconds, pause=pause))

    def wait_for_end(self, job: dict[str, Any]) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            found = self.api.get("/executions", params={"job_id": job["id"]}).raise_for_status().json()["results"]
            return found[0] if found and found[0]["ended_at"] else None

        execution = wait_for(ended, f"{job['name']} ended", seconds=90)
        assert execution is not None
        return execution

    def attempt(self, execution: dict[str, Any]) -> dict[str, Any]:
        (attempt,) = self.api.get(f"/executions/{execution['id']}/attempts").raise_for_status().json()["results"]
        found: dict[str, Any] = attempt
        return found

    def log(self, execution: dict[str, Any], **query: str) -> str:
        return self.api.get(f"/executions/{execution['id']}/logs", params=query).raise_for_status().text


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(stack.process("worker").environ()["DATABASE_URL"], autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def greedy(stack: Stack) -> Iterator[User]:
    user = User(stack, "greedy", storage_mb=2)
    with user.api:
        yield user


@pytest.fixture(scope="module")
def modest(stack: Stack) -> Iterator[User]:
    user = User(stack, "modest", storage_mb=0)
    with user.api:
        yield user


def test_a_chatty_run_stores_few_rows_and_loses_nothing(modest: User, database: psycopg.Connection[Any]) -> None:
    seconds = 5
    execution = modest.wait_for_end(modest.chatter("chatty", seconds=seconds, pause="time.sleep(0.0002)"))
    assert execution["status"] == "succeeded"
    counted = database.execute("SELECT count(*) FROM jobs_logchunk WHERE execution_id = %s", [execution["id"]])
    ((rows,),) = counted.fetchall()
    written = {stream: modest.log(execution, stream=stream).splitlines() for stream in ("stdout", "stderr")}
    lines = len(written["stdout"])
    print(f"{rows} rows of {2 * lines} lines")
    assert lines > 1000
    assert written == {name: [f"{name[3:]} {n}" for n in range(lines)] for name in ("stdout", "stderr")}
    # 256 at once, then one of each stream a flush; a busy machine may take longer than the program says.
    assert rows <= 256 + 3 * seconds * 10


def test_who_has_no_storage_left_is_cut_and_refused_while_anothers_log_goes_on(greedy: User, modest: User) -> None:
    flood = greedy.chatter("flood", seconds=20, pause="os.write(1, b'x' * 60000); time.sleep(0.05)")
    steady = modest.chatter("steady", seconds=20, pause="time.sleep(0.01)")
    execution = greedy.wait_for_end(flood)
    assert execution["status"] == "succeeded", "its program goes on, whatever becomes of its log"
    assert greedy.attempt(execution)["log_truncated"]
    assert "[punctual] Log cut here: the owner's storage is full" in greedy.log(execution)[-500:]
    refused = greedy.api.post("/jobs", json={"name": "more", "runtime": "bash", "script": "echo more"})
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:punctual:quota")
    other = modest.wait_for_end(steady)
    assert not modest.attempt(other)["log_truncated"]
    stdout = modest.log(other, stream="stdout").splitlines()
    assert stdout == [f"out {n}" for n in range(len(stdout))]
    assert len(stdout) > 100


def test_expensive_audits_of_one_user_do_not_stop_anothers_requests(
    greedy: User, modest: User, database: psycopg.Connection[Any]
) -> None:
    # The test before may have used it up.
    database.execute("UPDATE jobs_ownerquota SET storage_mb = 0")
    job = greedy.submit(name="ancient", runtime="bash", script="true", schedules=[{"cron": "* * * * *"}])
    database.execute(ANCIENT, [job["id"]])
    since = {"from": (datetime.now(UTC) - timedelta(days=7000)).isoformat(), "job_id": job["id"]}
    statuses: list[int] = []

    def audit() -> None:
        statuses.append(greedy.api.get("/audit/firings", params=since).status_code)

    audits = [threading.Thread(target=audit) for _ in range(40)]
    for each in audits:
        each.start()
    slowest, asked = 0.0, 0
    while any(each.is_alive() for each in audits) or asked < 10:
        began = time.monotonic()
        modest.api.get("/jobs").raise_for_status()
        slowest, asked = max(slowest, time.monotonic() - began), asked + 1
    own = modest.api.get("/audit/firings", params={"from": (datetime.now(UTC) - timedelta(hours=1)).isoformat()})
    for each in audits:
        each.join()
    print(f"{asked} requests of another user, the slowest in {slowest:.2f} s; audits: {sorted(statuses)}")
    assert own.status_code == 200
    # One was given all of its time, the others were told to come back.
    assert set(statuses) == {400, 429}
    assert statuses.count(400) <= 3
    assert slowest < 5
