"""`webhooks`: requests and output."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from punctual_cli.__main__ import main
from tests.unit.punctual_cli.server import RecordingServer

OWN = "0198c0de-0000-7000-8000-000000000001"
SENT = "0198c0de-0000-7000-8000-000000000002"
WEBHOOK: dict[str, object] = {
    "id": OWN, "name": "ops", "owner": "ann", "url": "https://example.com/\x1b[31m", "events": ["failed", "missed"],
    "job": None, "enabled": True, "disabled_reason": "", "failing_since": None,
    "created_at": "2030-01-01T00:00:00Z", "updated_at": "2030-01-01T00:00:00Z",
}  # fmt: skip
DELIVERY: dict[str, object] = {
    "id": SENT, "event": "ping", "execution": None, "state": "pending", "attempts": 0, "tries_left": 1,
    "next_try_at": "2030-01-01T00:00:00Z", "tried_at": None, "status_code": None, "error": "", "response": "",
    "created_at": "2030-01-01T00:00:00Z", "ended_at": None,
}  # fmt: skip
NAMED = "/api/v1/webhooks?name=ops&limit=2"
DELIVERIES = f"/api/v1/webhooks/{OWN}/deliveries"
ENDED = DELIVERY | {"attempts": 1, "next_try_at": None, "ended_at": "2030-01-01T00:00:01Z"}


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


Punctual = Callable[..., Ended]


@pytest.fixture
def punctual(server: RecordingServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Punctual:
    """The command as its process runs it, in this one: many are run here, and a process takes half a second."""
    monkeypatch.setenv("PUNCTUAL_URL", server.url)
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")

    def run(*words: str) -> Ended:
        code = main(words)
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return run


def bodies(server: RecordingServer) -> list[tuple[str, str, object]]:
    return [(each.method, each.path, json.loads(each.body) if each.body else None) for each in server.requests]


def page(*items: object) -> dict[str, object]:
    return {"results": list(items), "next": None}


def test_list_shows_the_status_of_each_webhook(punctual: Punctual, server: RecordingServer) -> None:
    gone = WEBHOOK | {"enabled": False, "disabled_reason": "The receiver answered 410 Gone."}
    failing = WEBHOOK | {"failing_since": "2030-01-01T00:00:00Z"}
    listed = page(WEBHOOK, failing, gone, WEBHOOK | {"enabled": False})
    server.answer("GET", "/api/v1/webhooks?limit=50", listed)
    lines = [line.split("\t") for line in punctual("webhooks").stdout.splitlines()]
    standing = [line[2] for line in lines[1:]]
    assert standing == ["enabled", "failing", "The receiver answered 410 Gone.", "disabled"]
    assert lines[1][3:5] == ["https://example.com/\\x1b[31m", "failed,missed"]


def test_creating_a_webhook_prints_its_secret(punctual: Punctual, server: RecordingServer) -> None:
    server.answer("POST", "/api/v1/webhooks", WEBHOOK | {"secret": "whsec_abc"}, status=201)
    server.answer("GET", "/api/v1/jobs?name=nightly&limit=100", page({"id": SENT, "name": "nightly", "status": "x"}))
    ended = punctual("webhooks", "add", "ops", "https://example.com/")
    assert (ended.returncode, ended.stdout) == (0, "whsec_abc\n")
    assert "never shown again" in ended.stderr
    assert "whsec" not in ended.stderr
    chosen = ("--event", "failed", "--event", "missed", "--job", SENT)
    ended = punctual("webhooks", "add", "ops", "https://example.com/", *chosen, "-o", "json")
    assert json.loads(ended.stdout)["secret"] == "whsec_abc"
    plain = {"name": "ops", "url": "https://example.com/"}
    assert bodies(server) == [
        ("POST", "/api/v1/webhooks", plain),
        ("POST", "/api/v1/webhooks", plain | {"events": ["failed", "missed"], "job": SENT}),
    ]
    assert punctual("webhooks", "add", "ops", "https://x", "--event", "ran").returncode == 2


def test_a_refused_address_is_reported(punctual: Punctual, server: RecordingServer) -> None:
    refusal = {"detail": "url: no", "errors": [{"field": "url", "message": "The host is not on the public internet."}]}
    server.answer("POST", "/api/v1/webhooks", refusal, status=400)
    ended = punctual("webhooks", "add", "ops", "https://10.0.0.1/")
    assert ended.returncode == 4
    assert "public internet" in ended.stderr


@pytest.mark.parametrize(
    ("words", "asked", "said"),
    [
        (["enable"], ("PATCH", "", {"enabled": True}), "Enabled ops."),
        (["disable"], ("PATCH", "", {"enabled": False}), "Disabled ops."),
        (["delete", "--yes"], ("DELETE", "", None), "Deleted ops."),
        (["rotate"], ("POST", "/rotate", None), "has a new secret"),
        (["rotate", "--force"], ("POST", "/rotate", {"force": True}), "has a new secret"),
    ],
)
def test_a_webhook_is_changed_by_its_name(
    punctual: Punctual, server: RecordingServer, words: list[str], asked: tuple[str, str, object], said: str
) -> None:
    server.answer("GET", NAMED, page(WEBHOOK))
    method, path, body = asked
    server.answer(method, f"/api/v1/webhooks/{OWN}{path}", WEBHOOK | {"secret": "whsec_new"})
    ended = punctual("webhooks", words[0], "ops", *words[1:])
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stderr
    assert ended.stdout == ("whsec_new\n" if words[0] == "rotate" else "")
    *where, sent = bodies(server)[-1]
    assert where == [method, f"/api/v1/webhooks/{OWN}{path}"]
    assert (sent or None) == body


@pytest.mark.parametrize(
    ("becomes", "code", "said"),
    [
        (ENDED | {"state": "delivered", "status_code": 204}, 0, "The test arrived: the answer was 204."),
        (ENDED | {"state": "failed", "error": "The answer was 500."}, 1, "did not arrive: The answer was 500."),
    ],
)
def test_a_test_is_waited_for(
    punctual: Punctual, server: RecordingServer, becomes: dict[str, object], code: int, said: str
) -> None:
    server.answer("GET", f"/api/v1/webhooks/{OWN}", WEBHOOK)
    server.answer("POST", f"/api/v1/webhooks/{OWN}/ping", DELIVERY, status=202)
    server.answer("GET", f"{DELIVERIES}?limit=100", page(DELIVERY))
    server.answer("GET", f"{DELIVERIES}?limit=100", page(becomes))
    ended = punctual("webhooks", "ping", OWN)
    assert said in ended.stderr
    assert ended.returncode == code


def test_deliveries_are_listed_and_sent_again(punctual: Punctual, server: RecordingServer) -> None:
    server.answer("GET", NAMED, page(WEBHOOK), times=3)
    failed = ENDED | {
        "state": "failed",
        "status_code": 500,
        "error": "The answer was 500.",
        "event": "execution.failed",
    }
    server.answer("GET", f"{DELIVERIES}?state=failed&limit=50", page(failed))
    server.answer("POST", f"{DELIVERIES}/{SENT}/redeliver", DELIVERY, status=202)
    listed = punctual("webhooks", "deliveries", "ops", "--state", "failed").stdout.splitlines()
    assert listed[1].split("\t") == [
        SENT, "execution.failed", "failed", "1", "500", "2030-01-01 00:00:00Z", "", "The answer was 500.",
    ]  # fmt: skip
    ended = punctual("webhooks", "redeliver", "ops", SENT)
    assert (ended.returncode, ended.stderr) == (0, f"Sending {SENT} again.\n")
    assert punctual("webhooks", "redeliver", "ops", "the-last").returncode == 2


@pytest.mark.parametrize(
    ("found", "said"), [([], "There is no webhook called"), ([WEBHOOK, WEBHOOK], "Several owners")]
)
def test_an_unknown_or_ambiguous_webhook_is_refused(
    punctual: Punctual, server: RecordingServer, found: list[object], said: str
) -> None:
    server.answer("GET", NAMED, page(*found))
    ended = punctual("webhooks", "show", "ops")
    assert ended.returncode != 0
    assert said in ended.stderr
