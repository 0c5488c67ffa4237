"""`login`, `tokens`, `profiles` and `logout` against the real API: what is kept, what is sent, what is revoked."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from jobs.access import login
from jobs.access.tokens import compute_digest
from jobs.models import ApiToken
from punctual_cli.__main__ import main
from punctual_client.profiles import profiles_path, read_profiles
from tests.support.factories import make_user
from tests.support.waiting import wait_for

PASSWORD = "correct horse"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, typed: str = "", **environment: str) -> Ended:
        with monkeypatch.context() as here:
            given = {"XDG_CONFIG_HOME": str(tmp_path), "PUNCTUAL_VAR": "/nonexistent"} | environment
            for name in ("PUNCTUAL_URL", "PUNCTUAL_TOKEN", "PUNCTUAL_PROFILE"):
                here.setenv(name, given.pop(name, ""))
            for name, value in given.items():
                here.setenv(name, value)
            here.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
            code = main(words)
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def ann(transactional_db: None, settings: Settings, tmp_path: Path) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.STATIC_ROOT = tmp_path
    for key in login._redis().client.scan_iter("punctual:login:*"):
        login._redis().client.delete(key)
    return make_user(password=PASSWORD)


def kept(tmp_path: Path, name: str) -> ApiToken:
    profile = read_profiles(profiles_path({"XDG_CONFIG_HOME": str(tmp_path)})).by_name(name)
    return ApiToken.objects.get(digest=compute_digest(profile.token))


def test_in_and_out(run: Run, ann: User, live_server: LiveServer, tmp_path: Path) -> None:
    words = ("--profile", "work", "login", live_server.url, "--user", ann.username)
    refused = run(*words, typed="wrong\n")
    assert (refused.code, refused.err) == (3, "punctual: The user name or the password is wrong.\n")
    entered = run(*words, typed=PASSWORD + "\n")
    assert (entered.code, entered.out) == (0, "")
    assert f"as {ann.username} (scope admin)" in entered.err
    assert PASSWORD not in entered.err
    first = kept(tmp_path, "work")
    assert first.name.startswith("cli on ")
    assert run("jobs").code == 0
    assert run("jobs", PUNCTUAL_PROFILE="other").code == 3
    elsewhere = {"PUNCTUAL_URL": "ftp://x", "PUNCTUAL_TOKEN": "x"}
    assert (run("jobs", **elsewhere).code, run("--profile", "work", "jobs", **elsewhere).code) == (3, 0)

    run(*words, typed=PASSWORD + "\n")
    first.refresh_from_db()
    assert first.revoked_at is not None, "the new token takes its place"
    second = kept(tmp_path, "work")
    assert run("profiles").out.splitlines()[1:] == [f"work\t{live_server.url}\tyes"]
    assert run("logout").code == 0
    second.refresh_from_db()
    assert second.revoked_at is not None
    assert run("profiles").out.splitlines()[1:] == []
    assert run("jobs").code == 3
    assert run("logout").code == 3


def test_tokens_are_created_listed_stored_and_revoked(
    run: Run, ann: User, live_server: LiveServer, tmp_path: Path
) -> None:
    run("login", live_server.url, "--user", ann.username, typed=PASSWORD)
    made = run("tokens", "create", "--name", "ci", "--scope", "read", "--days", "3")
    secret = made.out.strip()
    token = ApiToken.objects.get(digest=compute_digest(secret))
    assert (token.name, token.scope, token.expires_at is not None) == ("ci", "read", True)
    for_ever = run("tokens", "create", "--name", "for ever", "--never-expires", "-o", "json")
    assert '"expires_at": null' in for_ever.out
    assert "\tread\tno expiry\t" in run("tokens").out
    assert "\tci\t" in run("tokens").out
    assert secret not in run("tokens", "-o", "json").out

    taken = run("--profile", "ci", "login", live_server.url, "--token", typed=secret + "\n")
    assert (taken.code, kept(tmp_path, "ci")) == (0, token)
    assert run("tokens", "create", "--name", "x", "--secret", "db", "--all-secrets").code == 2
    other = live_server.url.replace("http://", "").replace(":", "-")
    for given, secrets in ((("--secret", "db"), ["db"]), (("--all-secrets",), ["*"]), ((), [])):
        name = f"with {secrets}"
        run("--profile", other, "tokens", "create", "--name", name, "--scope", "submit", *given)
        assert ApiToken.objects.get(name=name).secrets == secrets
    small = run("tokens", "create", "--name", "more")
    assert small.code == 3
    assert small.err == "punctual: This needs a token of scope admin; this one has read.\n"
    assert run("profiles", "use", "gone").code == 3

    assert run("--profile", other, "tokens", "revoke", "ci", "--yes").err == "Revoked ci.\n"
    assert run("--profile", other, "tokens", "revoke", "ci", "--yes").code == 4
    # What was read with a moment ago may read for a second more.
    wait_for(lambda: run("jobs").code, "the token is refused")
    gone = run("jobs")
    assert (gone.code, gone.err.startswith("punctual: Your token was revoked on ")) == (3, True)
    assert run("logout").code == 0, "what is no longer good needs no revoking"


def test_all_tokens_are_revoked_at_once_and_the_list_marks_those_that_a_new_password_ended(
    run: Run, ann: User, live_server: LiveServer
) -> None:
    words = ("login", live_server.url, "--user", ann.username)
    run(*words, typed=PASSWORD)
    assert [run("tokens", "revoke", *more).code for more in ((), ("ci", "--all"), ("ci", "--workers"))] == [2, 2, 2]
    assert run("tokens", "revoke", "--all", "--yes").err == "Revoked 1 token: log in for a new one.\n"
    assert ApiToken.objects.get().revoked_at is not None

    run(*words, typed=PASSWORD)
    ann.set_password("another horse")
    ann.save()
    wait_for(lambda: run("jobs").code, "the token is refused")
    refused = run("jobs")
    assert (refused.code, "password" in refused.err) == (3, True)
    run(*words, typed="another horse")
    ends = [line.split("\t")[4] for line in run("tokens").out.splitlines()[1:]]
    assert ends[0].startswith("20")
    assert (ends[1], ends[2].startswith("revoked")) == ("not accepted", True)


def test_logout_does_not_revoke_a_given_token(run: Run, ann: User, live_server: LiveServer, tmp_path: Path) -> None:
    run("--profile", "other", "login", live_server.url, "--user", ann.username, typed=PASSWORD)
    secret = run("tokens", "create", "--name", "ci").out.strip()
    words = ("--profile", "work", "login", live_server.url)
    assert run(*words, "--token", typed=secret).code == 0
    assert run(*words, "--user", ann.username, typed=PASSWORD).code == 0
    made = kept(tmp_path, "work")
    assert run(*words, "--token", typed=secret).code == 0
    made.refresh_from_db()
    assert made.revoked_at is not None
    assert "it was not revoked" in run("logout").err
    assert ApiToken.objects.get(digest=compute_digest(secret)).revoked_at is None


def test_an_expired_token_is_one_line(run: Run, ann: User, live_server: LiveServer) -> None:
    run("login", live_server.url, "--user", ann.username, typed=PASSWORD)
    ApiToken.objects.update(expires_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    ended = run("jobs")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "punctual: Your token expired on 2026-01-02 at 03:04 UTC: run punctual login for a new one.\n"


def test_a_token_that_cannot_be_stored_is_revoked(run: Run, ann: User, live_server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ("login", live_server.url, "--user", ann.username)
    ended = run(*words, typed=PASSWORD, XDG_CONFIG_HOME=str(tmp_path / "file"))
    assert (ended.code, "could not be written" in ended.err) == (1, True)
    assert ApiToken.objects.get(owner=ann).revoked_at is not None


def test_without_a_person_to_ask_and_without_a_server(run: Run) -> None:
    assert run("login").code == 2
    assert run("login", "http://127.0.0.1:1").err == "punctual: There is no terminal to ask on: use --user.\n"
    assert run("login", "ftp://x").code == 3
    assert run("--profile", "local", "login", "http://127.0.0.1:1").code == 2
    dead = run("login", "http://127.0.0.1:1", "--user", "ann", typed="x")
    assert (dead.code, "cannot be reached" in dead.err) == (3, True)
    insecure = run("login", "http://127.0.0.2:1", "--user", "ann", typed="x", NO_PROXY="*")
    assert (insecure.code, "is not https" in insecure.err) == (3, True)
    allowed = run(
        "login", "http://127.0.0.2:1", "--user", "ann", typed="x", NO_PROXY="*", PUNCTUAL_ALLOW_PLAINTEXT="http"
    )
    assert "cannot be reached" in allowed.err


def test_logging_out_of_a_server_that_is_away(run: Run, ann: User, live_server: LiveServer, tmp_path: Path) -> None:
    run("login", live_server.url, "--user", ann.username, typed=PASSWORD)
    path = profiles_path({"XDG_CONFIG_HOME": str(tmp_path)})
    path.write_text(path.read_text().replace(live_server.url, "http://127.0.0.1:1"))
    away = run("logout")
    assert (away.code, "--forget" in away.err) == (3, True)
    assert (run("logout", "--forget").code, run("logout").code) == (0, 3)
