"""A program leaks its secrets in every way it can; none is found in what Punctual shows and keeps."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import psycopg
import pytest
import redis
from psycopg import sql

from tests.acceptance.test_cli import punctual
from tests.acceptance.test_system_tasks import submit
from tests.support.stack import Stack
from tests.support.waiting import wait_for

# It ends well only if it was given what its arguments say, and only at the second try.
LEAKS = """
import base64, hashlib, json, os, sys, time, urllib.parse

given = [os.environ["GIVEN"], open("keys/given").read()]
if [hashlib.sha256(value.encode()).hexdigest() for value in given] != sys.argv[1:]:
    os._exit(3)
progress = open(os.environ["PUNCTUAL_PROGRESS"], "w", buffering=1)
for value in given:
    for stream in (sys.stdout, sys.stderr):
        print("see-me", value, repr(value), json.dumps([value]), urllib.parse.quote(value), file=stream, flush=True)
    for piece in (value[:5], value[5:9], value[9:] + "\\n"):
        os.write(1, piece.encode())
        time.sleep(0.3)
    for before in ("", "x", "xy", "xyz"):
        print(base64.b64encode((before + value + "z").encode()).decode())
    print("50 see-me", value, file=progress)
    time.sleep(1.1)
    with open("out/see-me-" + value.replace("\\n", ""), "w"), open("out/see-me", "w"):
        pass
with open("out/result.json", "w") as file:
    json.dump({"see-me": given, given[0]: {given[1]: 1}}, file)
if os.environ["PUNCTUAL_ATTEMPT"] == "1":
    sys.exit(given[0])
"""
SEEN = b"see-me"
DETAILS_OF_A_LIST = 3


def needles_of(value: str) -> set[bytes]:
    """What must be nowhere: the value, as JSON, in a URL, in a bytea, and within base64 of whatever."""
    data = value.encode()
    within = [b64encode(bytes(n) + data)[-(-8 * n // 6) : 8 * (n + len(data)) // 6] for n in range(3)]
    return {data, json.dumps(value)[1:-1].encode(), quote(value).encode(), data.hex().encode(), *within}


Content = bytes | mmap.mmap
# Where the program is heard, so that to find no secret means something; and what else must not be forgotten.
HEARD = ("/logs", "/attempts", "/outputs", "/admin/jobs/execution/", "punctual logs", "table public.jobs_logchunk")
ALSO = ("GET /secrets/", "/admin/jobs/secret/", "punctual secrets", "flower /task/", "redis", "file")


class Search:
    def __init__(self, values: Iterable[str]) -> None:
        lines = [line for value in values for line in value.splitlines()]
        self._needles = {needle for line in lines for needle in needles_of(line)}
        self.places: list[str] = []
        self.found: list[str] = []
        self.telling: list[str] = []

    def look(self, place: str, content: Content) -> None:
        self.places.append(place)
        if any(content.find(needle) >= 0 for needle in self._needles):
            self.found.append(place)
        if content.find(SEEN) >= 0 or content.find(SEEN.hex().encode()) >= 0:
            self.telling.append(place)


@pytest.fixture
def values() -> tuple[str, str]:
    """One with letters that JSON and URLs write otherwise, and one of two lines."""
    return f'é"{uuid4()}', f"first-{uuid4()}\nsecond-{uuid4()}\n"


def test_secrets_reach_only_the_program(stack: Stack, values: tuple[str, str]) -> None:
    search = Search(values)
    names = [f"secret-{uuid4().hex[:8]}" for _ in values]
    ids = []
    for name, value in zip(names, values, strict=True):
        refused = stack.api.post("/secrets", json={"name": "no name", "value": value, "more": value})
        assert refused.status_code == 400
        made = stack.api.post("/secrets", json={"name": name, "value": value})
        assert made.status_code == 201, made.text
        search.look(f"POST {refused.text}", refused.content)
        search.look(f"POST {made.text}", made.content)
        ids.append(made.json()["id"])
    job = stack.submit(
        name=f"leaks-{uuid4().hex[:8]}",
        runtime="python",
        script=LEAKS,
        args=[hashlib.sha256(value.encode()).hexdigest() for value in values],
        secrets=[{"name": names[0], "env": "GIVEN"}, {"name": names[1], "file": "keys/given"}],
        retry={"max_attempts": 2, "backoff_seconds": 0.1},
    )
    assert stack.wait_for_progress(job)["message"].startswith("see-me ***")
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["attempt"], execution["exit_code"]) == ("succeeded", 2, 0)
    assert execution["result"] == {"see-me": ["***", "***"], "***": {"***": 1}}

    for place, content in everything(stack, job, execution, ids):
        search.look(place, content)

    assert search.found == []
    for kind in HEARD:
        assert any(kind in place for place in search.telling), f"nothing of the run is in any {kind}"
    for kind in ALSO:
        assert any(kind in place for place in search.places), f"no {kind} was looked at"


def everything(
    stack: Stack, job: dict[str, Any], execution: dict[str, Any], secret_ids: list[str]
) -> Iterator[tuple[str, Content]]:
    yield from api_answers(stack, job, execution, secret_ids)
    yield from admin_pages(stack, [f"jobs/job/{job['id']}", f"jobs/execution/{execution['id']}"])
    yield from flower_pages(stack)
    yield from command_outputs(stack, execution)
    environment = stack.process("worker").environ()
    yield from redis_values(environment["REDIS_URL"])
    yield from postgres_tables(environment["DATABASE_URL"])
    yield from files(stack)


def api_answers(
    stack: Stack, job: dict[str, Any], execution: dict[str, Any], secret_ids: list[str]
) -> Iterator[tuple[str, bytes]]:
    run = f"/executions/{execution['id']}"
    found = {"q": "***", "mode": "substring", "job_id": job["id"]}
    wait_for(lambda: stack.api.get("/logs/search", params=found).json()["results"], "its log can be searched")
    since, until = execution["fired_at"], execution["ended_at"]
    addresses = [
        *("/jobs", f"/jobs/{job['id']}", f"/jobs/{job['id']}/next", f"/jobs/{job['id']}/backfills"),
        *("/executions", run, f"{run}/attempts", f"{run}/events", f"{run}/explain", f"{run}/outputs"),
        *(f"{run}/logs{query}" for query in ("", "?format=json", "?attempt=1", "?attempt=1&format=json")),
        *("/secrets", *(f"/secrets/{each}" for each in secret_ids)),
        *(
            f"/audit/firings?from={quote(since)}&to={quote(until)}",
            f"/logs/search?q={quote('***')}&mode=substring&job_id={job['id']}",
            "/artifacts",
            "/dead-letters",
            "/usage",
            "/workers",
            "/queues",
            "/schema",
            "/docs",
        ),
    ]
    for address in addresses:
        yield f"GET {address}", stack.api.get(address).raise_for_status().content
    yield "GET /metrics", httpx.get(f"{stack.url.rstrip('/')}/metrics", headers=stack.api.headers).content


def admin_pages(stack: Stack, details: list[str]) -> Iterator[tuple[str, bytes]]:
    """Every list, the first of each list, and these."""
    with httpx.Client(base_url=stack.url, timeout=20, follow_redirects=True) as admin:
        credentials = {"username": stack.credentials["admin_user"], "password": stack.credentials["admin_password"]}
        submit(admin, "/admin/login/", credentials | {"next": "/admin/"})
        index = admin.get("/admin/").raise_for_status()
        lists = sorted(set(re.findall(r'"(/admin/\w+/\w+/)"', index.text)))
        addresses = [f"/admin/{each}/change/" for each in details]
        addresses += [f"/admin/{each}/log/" for each in details if "/execution/" in each]
        for address in lists:
            page = admin.get(address).raise_for_status()
            yield address, page.content
            found = dict.fromkeys(re.findall(rf'"({address}[^/"]+/change/)', page.text))
            addresses += list(found)[:DETAILS_OF_A_LIST]
        for address in dict.fromkeys(addresses):
            yield address, admin.get(address).raise_for_status().content


def flower_pages(stack: Stack) -> Iterator[tuple[str, bytes]]:
    auth = (stack.credentials["flower_user"], stack.credentials["flower_password"])
    with httpx.Client(base_url=stack.credentials["flower_url"], auth=auth, timeout=20) as flower:
        tasks = flower.get("/api/tasks").raise_for_status()
        yield "flower /api/tasks", tasks.content
        for address in ("/workers", "/tasks", "/broker", *(f"/task/{each}" for each in list(tasks.json())[:5])):
            yield f"flower {address}", flower.get(address).raise_for_status().content


def command_outputs(stack: Stack, execution: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    for words in (("jobs",), ("executions",), ("logs", execution["id"]), ("explain", execution["id"]), ("secrets",)):
        ended = punctual(stack, *words)
        yield f"punctual {' '.join(words)}", (ended.stdout + ended.stderr).encode()


def redis_values(url: str) -> Iterator[tuple[str, bytes]]:
    def flat(value: object) -> Iterator[bytes]:
        if isinstance(value, bytes):
            yield value
        elif isinstance(value, dict):
            yield from flat(list(value.items()))
        elif isinstance(value, (list, tuple, set)):
            for each in value:
                yield from flat(each)

    with redis.Redis.from_url(url) as client:
        read = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"stream": client.xrange,
        }
        for key in client.scan_iter():
            kind = client.type(key)
            if kind != b"none":  # it has just expired
                yield f"redis {key!r}", b"\0".join([key, *flat(read[kind](key))])


def postgres_tables(url: str) -> Iterator[tuple[str, bytes]]:
    listed = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
    listed += "AND table_schema NOT IN ('pg_catalog', 'information_schema')"
    with psycopg.connect(url, autocommit=True) as database:
        for schema, table in database.execute(listed).fetchall():
            # Not of the table itself: one that has partitions cannot be copied.
            statement = sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(sql.Identifier(schema, table))
            with database.cursor().copy(statement) as rows:
                yield f"table {schema}.{table}", b"".join(map(bytes, rows))


def files(stack: Stack) -> Iterator[tuple[str, mmap.mmap]]:
    """All that the stack keeps, but for the object store: what a program puts into its outputs is its own business."""
    for path in stack.var.rglob("*"):
        if path.relative_to(stack.var).parts[0] != "seaweedfs" and path.is_file() and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield f"file {path}", content
