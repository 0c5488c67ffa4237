"""`doctor` gives every check a verdict, and failed ones a remedy."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from punctual_cli import doctor_checks
from punctual_cli.__main__ import main
from punctual_cli.doctor_checks import Verdict, check_clock, check_disk, check_token_file_modes
from punctual_client.transport import ProbeResult
from tests.unit.punctual_cli.server import RecordingServer

WELL = dict.fromkeys(("database", "migrations", "redis", "storage", "workers", "beat"), "ok")
WORKER = {"id": "W", "name": "alpha", "status": "online", "host": "h", "pool": "default", "capabilities": ["bash"]}
QUEUE = {"id": "Q", "name": "default", "pool": "default", "priority": 0, "max_concurrency": None, "paused": False}
TOKEN = {"id": "T", "name": "cli", "owner": "ann", "scope": "admin", "expires_at": None}


@pytest.fixture
def well(server: RecordingServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RecordingServer:
    monkeypatch.setenv("PUNCTUAL_URL", server.url)
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")
    monkeypatch.setenv("PUNCTUAL_VAR", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    server.answer("GET", "/healthz", {"status": "ok"})
    return server


def answer(server: RecordingServer, **parts: object) -> None:
    server.answer("GET", "/readyz", {"status": "x", "checks": parts.get("checks", WELL)})
    server.answer("GET", "/api/v1/tokens/self", parts.get("token", TOKEN), status=int(str(parts.get("status", 200))))
    server.answer("GET", "/api/v1/workers?limit=100", {"results": parts.get("workers", [WORKER]), "next": None})
    server.answer("GET", "/api/v1/queues?limit=100", {"results": parts.get("queues", [QUEUE]), "next": None})


def not_well(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    found = json.loads(capsys.readouterr().out)
    return {each["check"]: (each["verdict"], each["do"]) for each in found if each["verdict"] != "ok"}


def test_a_server_that_is_well_gets_a_mark_each(well: RecordingServer, capsys: pytest.CaptureFixture[str]) -> None:
    answer(well)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("✓ ") for line in lines)
    assert [line.split()[1] for line in lines] == [
        "server:", "clock:", *(f"{name}:" for name in WELL), "token:", "worker:", "queue:",
    ]  # fmt: skip
    assert "authorization" not in well.requests[0].headers


@pytest.mark.parametrize(
    ("parts", "name", "verdict"),
    [
        ({"checks": WELL | {"redis": "does not answer"}}, "redis", "failed"),
        ({"checks": WELL | {"beat": "no beat"}}, "beat", "failed"),
        ({"workers": [WORKER | {"refusal": "The sandbox does not hold."}]}, "worker", "failed"),
        ({"workers": [WORKER | {"status": "draining"}, WORKER]}, "worker", "warning"),
        ({"workers": [WORKER | {"pool": "gpu"}]}, "queue", "failed"),
        ({"queues": [QUEUE | {"paused": True}]}, "queue", "warning"),
        ({"token": {"detail": "It has expired."}, "status": 401}, "token", "failed"),
        ({"token": TOKEN | {"expires_at": (datetime.now(UTC) + timedelta(days=2)).isoformat()}}, "token", "warning"),
    ],
)
def test_a_failed_check_has_a_remedy(
    well: RecordingServer, capsys: pytest.CaptureFixture[str], parts: dict[str, object], name: str, verdict: str
) -> None:
    answer(well, **parts)
    assert main(["doctor", "-o", "json"]) == (1 if verdict == "failed" else 0)
    found = not_well(capsys)
    assert found[name][0] == verdict
    assert found[name][1], "what to do"


def test_no_server_and_no_configuration_are_different_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PUNCTUAL_VAR", str(tmp_path / "none"))
    monkeypatch.delenv("PUNCTUAL_URL", raising=False)
    assert main(["doctor", "-o", "json"]) == 1
    assert "config" in not_well(capsys)
    monkeypatch.setenv("PUNCTUAL_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")
    assert main(["doctor", "-o", "json"]) == 1
    assert not_well(capsys) == {"server": ("failed", "check the address and the server")}
    monkeypatch.setattr(doctor_checks, "IN_CHECKOUT", True)
    assert main(["doctor", "-o", "json"]) == 1
    assert not_well(capsys) == {"server": ("failed", "start it: punctual up")}


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0, Verdict.OK), (4, Verdict.OK), (7, Verdict.FAILED), (-7, Verdict.FAILED)]
)
def test_clocks_may_differ_a_little(seconds: int, verdict: Verdict) -> None:
    now = datetime.now(UTC)
    said = {"date": format_datetime(now + timedelta(seconds=seconds), usegmt=True)}
    assert check_clock(ProbeResult(200, said, {}, 0.0), now).verdict is verdict
    assert check_clock(ProbeResult(200, {}, {}, 0.0), now).verdict is Verdict.WARNING


def test_a_file_with_a_token_is_for_its_owner_alone(tmp_path: Path) -> None:
    kept = tmp_path / "credentials.json"
    kept.touch(mode=0o600)
    assert [finding.verdict for finding in check_token_file_modes([kept, tmp_path / "none"])] == [Verdict.OK]
    kept.chmod(0o640)
    (finding,) = check_token_file_modes([kept])
    assert (finding.verdict, finding.remedy.split(",")[0]) == (Verdict.FAILED, f"chmod 600 {kept}")


def test_room_on_the_disk_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual_cli.doctor_checks.MIN_FREE_BYTES", 1)
    assert check_disk(tmp_path).verdict is Verdict.OK
    monkeypatch.setattr("punctual_cli.doctor_checks.MIN_FREE_BYTES", 1 << 62)
    assert check_disk(tmp_path).verdict is Verdict.FAILED
