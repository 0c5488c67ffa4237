"""The client against a real HTTP server: errors, retries, pages, and where the token goes."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import pytest

from jobs.domain import limits
from punctual_cli.commands.files import save_output
from punctual_client.client import Client
from punctual_client.errors import (
    ApiError,
    NotConfiguredError,
    PunctualError,
    ServerError,
    UnauthorisedError,
    UnreachableError,
    UsageError,
    WaitTimeoutError,
)
from punctual_client.resources.jobs import Job
from punctual_client.resources.outputs import Output
from punctual_client.transport import MAX_IDEMPOTENCY_WAIT_SECONDS
from tests.unit.punctual_cli.server import RecordingServer

JOBS = "/api/v1/jobs"
JOB = {"id": "J", "name": "nightly", "status": "scheduled", "schedules": []}
EXECUTION = {"id": "E", "job_id": "J", "status": "running", "attempt": 1, "exit_code": None}


def output_of(server: RecordingServer, name: str, content: bytes, *, status: int = 200) -> Output:
    server.answer("GET", "/store/file", content, status=status)
    return Output.parse(
        {
            "name": name,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "url": f"{server.url}/store/file",
        }
    )


def test_a_refused_field_is_named_with_its_sentence(server: RecordingServer) -> None:
    errors = [
        {"field": "schedules.0.cron", "message": "Not a cron expression."},
        {"field": "name", "message": "Too long."},
    ]
    server.answer("POST", JOBS, {"title": "Bad Request", "detail": "Invalid.", "errors": errors}, status=400)
    with pytest.raises(ApiError) as caught:
        server.client.submit_job({})
    assert caught.value.field == "schedules.0.cron"
    assert str(caught.value) == "schedules.0.cron: Not a cron expression.; name: Too long."
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("status", "body", "kind", "exit_code", "sentence"),
    [
        (404, {"detail": "There is no such job."}, ApiError, 4, "There is no such job."),
        (404, b"<html>no page", ApiError, 4, "answered 404, and not as Punctual does: is the address right?"),
        (409, {"title": "Conflict"}, ApiError, 4, "Conflict"),
        (401, {}, UnauthorisedError, 3, "The server refused the token: set PUNCTUAL_TOKEN"),
        (403, {"detail": "You may not."}, ApiError, 4, "You may not."),
        (403, {"detail": "Only staff.", "type": "urn:punctual:staff-only"}, ApiError, 4, "Only staff."),
        (403, {"detail": "It is full.", "type": "urn:punctual:quota"}, ApiError, 4, "It is full."),
        (403, {"detail": "No.", "errors": [{"field": "network", "message": "Ask."}]}, ApiError, 4, "network: Ask."),
        (403, {"detail": "Scope read.", "type": "urn:punctual:scope"}, UnauthorisedError, 3, "Scope read."),
        (403, b"<html>a proxy", ApiError, 4, "answered 403, and not as Punctual does"),
        (502, b"<html>Bad gateway", ServerError, 5, "The server answered 502 Bad Gateway."),
        (503, {"detail": "Try later."}, ServerError, 5, "503 Service Unavailable: Try later."),
        (302, b"", ServerError, 5, "The server answered 302 Found."),
        (200, b"<html>a router", ServerError, 5, "did not answer JSON"),
        (200, [], ServerError, 5, "not one that this version"),
        (200, {"id": "J"}, ServerError, 5, "has no 'name'"),
        (422, {"errors": [7, {"field": "x"}]}, ApiError, 4, "refused the request with 422"),
    ],
)
def test_every_answer_becomes_one_sentence(
    *, server: RecordingServer, status: int, body: object, kind: type[ApiError], exit_code: int, sentence: str
) -> None:
    server.answer("GET", f"{JOBS}/J", body, status=status)
    with pytest.raises(kind) as caught:
        server.client.job("J")
    assert sentence in str(caught.value)
    assert caught.value.exit_code == exit_code


def test_a_read_that_breaks_off_is_tried_again(server: RecordingServer) -> None:
    server.hang_up("GET", f"{JOBS}/J", times=2)
    server.answer("GET", f"{JOBS}/J", JOB)
    assert server.client.job("J").name == "nightly"
    assert len(server.requests) == 3


def test_a_write_that_breaks_off_is_not_tried_again(server: RecordingServer) -> None:
    server.hang_up("PATCH", f"{JOBS}/J", times=1)
    server.answer("PATCH", f"{JOBS}/J", JOB)
    with pytest.raises(UnreachableError, match="cannot be reached"):
        server.client.edit_job("J", {})
    assert len(server.requests) == 1


def test_a_creating_request_is_retried_with_the_same_key(server: RecordingServer) -> None:
    server.hang_up("POST", JOBS, times=1)
    server.answer("POST", JOBS, {"detail": "It is being answered."}, status=409, headers={"Retry-After": "1"})
    server.answer("POST", JOBS, JOB)
    assert server.client.submit_job({}).name == "nightly"
    server.client.submit_job({})
    keys = [asked.headers["idempotency-key"] for asked in server.requests]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_a_key_that_stays_claimed_is_waited_for(server: RecordingServer) -> None:
    """Its process died: the claim lasts for longer than a connection that is refused is tried again."""
    for _ in range(7):
        server.answer("POST", JOBS, {"detail": "It is being answered."}, status=409, headers={"Retry-After": "0"})
    server.answer("POST", JOBS, JOB)
    assert server.client.submit_job({}).name == "nightly"
    assert len({asked.headers["idempotency-key"] for asked in server.requests}) == 1
    assert MAX_IDEMPOTENCY_WAIT_SECONDS > limits.IDEMPOTENCY_CLAIM_SECONDS


def test_a_long_conflict_is_reported_at_once(server: RecordingServer) -> None:
    server.answer("POST", JOBS, {"detail": "It is full."}, status=409, headers={"Retry-After": "60"})
    with pytest.raises(ApiError, match="It is full"):
        server.client.submit_job({})
    assert len(server.requests) == 1


def test_many_are_submitted_at_once(server: RecordingServer) -> None:
    server.answer("POST", f"{JOBS}/bulk", {"results": [{"id": "A", "name": "a"}, {"id": "B", "name": "b"}]}, status=201)
    assert server.client.submit_jobs([{"name": "a"}, {"name": "b"}]) == ["A", "B"]
    assert server.requests[0].body == b'{"jobs":[{"name":"a"},{"name":"b"}]}'


def test_pages_are_followed_up_to_the_limit_under_our_own_address(server: RecordingServer) -> None:
    pages = f"{JOBS}?search=n&limit=3"
    elsewhere = "http://internal.invalid/api/v1/jobs?search=n&limit=3&cursor=c"
    server.answer("GET", pages, {"results": [JOB, JOB], "next": elsewhere})
    server.answer("GET", f"{pages}&cursor=c", {"results": [JOB, JOB], "next": elsewhere})
    assert len(server.client.jobs(search="n", limit=3)) == 3
    assert [asked.path for asked in server.requests] == [pages, f"{pages}&cursor=c"]


def test_a_page_that_names_itself_is_not_followed_for_ever(server: RecordingServer) -> None:
    server.answer("GET", f"{JOBS}?limit=5", {"results": [], "next": f"{server.url}{JOBS}?limit=5"})
    with pytest.raises(ServerError, match="never end"):
        server.client.jobs(limit=5)
    server.answer("GET", f"{JOBS}?limit=6", {"results": [], "next": f"{server.url}{JOBS}?limit=6&cursor=c"})
    server.answer("GET", f"{JOBS}?limit=6&cursor=c", {"results": [], "next": f"{server.url}{JOBS}?limit=6&cursor=d"})
    server.answer("GET", f"{JOBS}?limit=6&cursor=d", {"results": [], "next": f"{server.url}{JOBS}?limit=6&cursor=c"})
    with pytest.raises(ServerError, match="never end"):
        server.client.jobs(limit=6)


@pytest.mark.parametrize(
    ("status", "body", "headers", "sentence"),
    [
        (200, b"no gzip", {"Content-Encoding": "gzip"}, "is not valid gzip"),
        (500, b"no gzip", {"Content-Encoding": "gzip"}, "is not valid gzip"),
        (200, b"[" * 200_000, {}, "did not answer JSON"),
        (502, b"[" * 200_000, {}, "answered 502"),
        (301, b"", {"Location": "https://a:b@new.example:81/p/api/v1/jobs"}, "set PUNCTUAL_URL to that"),
        (302, b"", {"Location": "/accounts/login"}, "answered 302"),
        (308, b"", {"Location": "http://["}, "answered 308"),
    ],
)
def test_an_odd_answer_is_a_failure_of_the_server(
    server: RecordingServer, status: int, body: bytes, headers: dict[str, str], sentence: str
) -> None:
    server.answer("GET", f"{JOBS}/J", body, status=status, headers=headers)
    with pytest.raises(ServerError) as failed:
        server.client.job("J")
    assert sentence in str(failed.value)
    assert ("https://new.example:81/p:" in str(failed.value)) == (status == 301)


def test_an_id_stays_one_segment_of_the_path(server: RecordingServer) -> None:
    with pytest.raises(ApiError):
        server.client.job("a/b?c")
    assert server.requests[0].path == f"{JOBS}/a%2Fb%3Fc"


def test_waiting_ends_with_the_execution_or_the_time(server: RecordingServer) -> None:
    path = "/api/v1/executions/E"
    server.answer("GET", path, EXECUTION)
    with pytest.raises(WaitTimeoutError, match="still running"):
        server.client.wait("E", timeout_seconds=0)
    # A server that has no room for those who wait answers at once.
    server.answer("GET", f"{path}?wait=20", EXECUTION, times=2)
    server.answer("GET", f"{path}?wait=20", EXECUTION | {"status": "failed", "exit_code": 7})
    began = time.monotonic()
    assert server.client.wait("E", timeout_seconds=30).exit_code == 7
    assert time.monotonic() - began > 0.25 + 0.375


def test_submit_sends_a_file_with_its_fields(server: RecordingServer, tmp_path: Path) -> None:
    (tmp_path / "nightly.py").write_text("print(1)\n")
    (tmp_path / "words").write_text("a b\n")
    server.answer("POST", "/api/v1/artifacts", {"id": "A", "status": "stored", "upload": None})
    server.answer("POST", JOBS, JOB, status=201)
    words = tmp_path / "words"
    job = server.client.submit(tmp_path / "nightly.py", stdin=words, inputs={"data/a": words}, args=["--x"], priority=7)
    assert job.id == "J"
    assert json.loads(server.requests[-1].body) == {
        "name": "nightly", "runtime": "python", "script": "print(1)\n", "stdin": "a b\n",
        "inputs": [{"path": "data/a", "artifact": "A"}], "args": ["--x"], "priority": 7,
    }  # fmt: skip
    with pytest.raises(UsageError, match="'cobol' is not a runtime"):
        server.client.submit(tmp_path / "nightly.py", runtime="cobol")


def test_a_job_is_waited_for_by_its_first_execution_and_its_log_is_read(server: RecordingServer) -> None:
    later, first = ({**EXECUTION, "id": name, "status": "succeeded"} for name in ("F", "E"))
    server.answer("GET", "/api/v1/executions?job_id=J&limit=100", {"results": [later, first], "next": None})
    server.answer("GET", "/api/v1/executions/E?wait=20", first)
    server.answer("GET", "/api/v1/executions/E/logs", "a ü \n".encode() + b"\xff")
    ended = server.client.wait(Job.parse(JOB))
    assert ended.id == "E"
    assert server.client.log(ended) == "a ü \n\ufffd"


def test_an_address_without_its_token_is_no_client() -> None:
    with pytest.raises(NotConfiguredError, match="belong together"):
        Client("http://127.0.0.1:1")


def test_the_token_goes_to_the_server_and_not_to_the_storage(server: RecordingServer) -> None:
    storage = RecordingServer()
    try:
        storage.answer("GET", "/file", b"x")
        stated = {"name": "x", "size": 1, "sha256": hashlib.sha256(b"x").hexdigest(), "url": f"{storage.url}/file"}
        with server.client.download(Output.parse(stated)) as pieces:
            assert b"".join(pieces) == b"x"
        assert "authorization" not in storage.requests[0].headers
    finally:
        storage.close()
    server.answer("GET", f"{JOBS}/J", JOB)
    server.client.job("J")
    assert server.requests[0].headers["authorization"] == "Bearer the-token"


def test_a_refusal_of_the_storage_is_not_blamed_on_the_token(server: RecordingServer, tmp_path: Path) -> None:
    output = output_of(server, "a", b"<Error/>", status=403)
    with pytest.raises(ServerError, match="object store refused the transfer with 403"):
        save_output(server.client, output, tmp_path, replace=False)


def test_an_output_is_written_into_its_folder(server: RecordingServer, tmp_path: Path) -> None:
    output = output_of(server, "sub/report.txt", b"hello")
    assert save_output(server.client, output, tmp_path / "new", replace=False).read_bytes() == b"hello"
    assert [path.name for path in (tmp_path / "new" / "sub").iterdir()] == ["report.txt"]


def test_an_output_overwrites_a_file_only_on_request(server: RecordingServer, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    output = output_of(server, "a", b"theirs")
    with pytest.raises(UsageError, match="--force"):
        save_output(server.client, output, tmp_path, replace=False)
    assert (tmp_path / "a").read_text() == "mine"
    save_output(server.client, output, tmp_path, replace=True)
    assert (tmp_path / "a").read_text() == "theirs"


def test_an_output_does_not_follow_a_link_out_of_its_folder(server: RecordingServer, tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    with pytest.raises(UsageError, match="leads out"):
        save_output(server.client, output_of(server, "link/a", b"x"), folder, replace=True)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("content", [b"longer than stated", b"short", b"other"])
def test_an_output_that_is_not_the_stated_one_gets_no_name(
    server: RecordingServer, tmp_path: Path, content: bytes
) -> None:
    output = output_of(server, "a", content)
    stated = Output.parse(dict(output.raw) | {"size": 5, "sha256": hashlib.sha256(b"right").hexdigest()})
    with pytest.raises(PunctualError, match="does not match its size and hash"):
        save_output(server.client, stated, tmp_path, replace=False)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_named() -> None:
    with Client("http://127.0.0.1:1", "t") as client, pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:1 "):
        client.submit_job({})


def test_a_rate_limited_request_is_repeated_after_retry_after(server: RecordingServer) -> None:
    for _ in range(2):
        server.answer("POST", JOBS, {"detail": "Slowly."}, status=429, headers={"Retry-After": "0"})
    server.answer("POST", JOBS, JOB)
    assert server.client.submit_job({}).id == "J"
    assert len(server.requests) == 3


@pytest.mark.parametrize("said", ["61", "-1", "soon", "9" * 5000, "", "Fri, 31 Dec 1999 23:59:59 GMT"])
def test_a_long_retry_after_is_not_waited_for(server: RecordingServer, said: str) -> None:
    server.answer("GET", f"{JOBS}/J", {"detail": "Slowly."}, status=429, headers={"Retry-After": said})
    with pytest.raises(ApiError, match="Slowly"):
        server.client.job("J")
    assert len(server.requests) == 1


def test_rate_limited_retries_are_bounded(server: RecordingServer) -> None:
    server.answer("GET", f"{JOBS}/J", {"detail": "Slowly."}, status=429, headers={"Retry-After": "0"})
    with pytest.raises(ApiError, match="Slowly"):
        server.client.job("J")
    assert len(server.requests) == 6
