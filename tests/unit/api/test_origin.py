"""Client addresses behind trusted and untrusted proxies."""

from __future__ import annotations

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from jobs.api.framework import request_actor
from jobs.api.framework.request_actor import ActorMiddleware, resolve_client_address

PROXIES = ("10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize(
    ("trusted", "remote", "forwarded", "address"),
    [
        ((), "203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ((), "10.0.0.1", "198.51.100.1", "10.0.0.1"),
        (PROXIES, "203.0.113.9", "198.51.100.1", "203.0.113.9"),
        (PROXIES, "10.0.0.1", "198.51.100.1", "198.51.100.1"),
        (PROXIES, "10.0.0.1", "6.6.6.6, 198.51.100.1", "198.51.100.1"),
        (PROXIES, "10.0.0.1", "6.6.6.6, 198.51.100.1, 10.9.9.9", "198.51.100.1"),
        (PROXIES, "10.0.0.1", "", "10.0.0.1"),
        (PROXIES, "10.0.0.1", "unknown", "10.0.0.1"),
        (PROXIES, "10.0.0.1", "6.6.6.6, rubbish", "10.0.0.1"),
        (PROXIES, "::ffff:10.0.0.1", "2001:db8::7", "2001:db8::7"),
        (PROXIES, "fd00::1", "fe80::1%eth0", "fe80::1"),
        (PROXIES, "10.0.0.1", "198.51.100.1:5678", "198.51.100.1"),
        (PROXIES, "10.0.0.1", "[2001:db8::7]:80", "2001:db8::7"),
        (PROXIES, "10.0.0.1", "[2001:db8::7]", "2001:db8::7"),
        (PROXIES, "10.0.0.1", "[::ffff:198.51.100.1]:80, 10.9.9.9:443", "198.51.100.1"),
        (PROXIES, "10.0.0.1", "6.6.6.6, 198.51.100.1:", "10.0.0.1"),
        (PROXIES, "10.0.0.1", "6.6.6.6, 198.51.100.1:123456", "10.0.0.1"),
        (PROXIES, "10.0.0.1", "6.6.6.6, [198.51.100.1", "10.0.0.1"),
        (PROXIES, "10.0.0.1", "6.6.6.6, [198.51.100.1]:80", "10.0.0.1"),
        ((), "", "198.51.100.1", None),
        ((), "/run/web.sock", "198.51.100.1", None),
    ],
)
def test_forwarded_for_counts_as_far_as_trusted_proxies_wrote_it(
    settings: Settings, trusted: tuple[str, ...], remote: str, forwarded: str, address: str | None
) -> None:
    settings.PUNCTUAL_TRUSTED_PROXIES = trusted
    request = RequestFactory().get("/", REMOTE_ADDR=remote, headers={"X-Forwarded-For": forwarded})
    assert resolve_client_address(request) == address


@pytest.mark.timeout(3)
def test_long_header_is_parsed_fast(settings: Settings) -> None:
    settings.PUNCTUAL_TRUSTED_PROXIES = PROXIES
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", headers={"X-Forwarded-For": "[" + ":" * 60_000})
    assert resolve_client_address(request) == "10.0.0.1"


def test_untrusted_proxy_is_warned_about_once_a_minute(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PUNCTUAL_TRUSTED_PROXIES = PROXIES
    monkeypatch.setattr(request_actor, "_untrusted_proxy_warnings", request_actor.UntrustedProxyWarnings())
    monkeypatch.setattr(request_actor, "MAX_WARNED_PROXIES", 3)
    answer = ActorMiddleware(lambda request: HttpResponse())

    def ask(remote: str, forwarded: str | None) -> list[str]:
        caplog.clear()
        headers = {} if forwarded is None else {"X-Forwarded-For": forwarded}
        for _ in range(5):
            answer(RequestFactory().get("/", REMOTE_ADDR=remote, headers=headers))
        return [record.getMessage() for record in caplog.records]

    (warning,) = ask("203.0.113.9", "198.51.100.1\n")
    assert "203.0.113.9" in warning
    assert "PUNCTUAL_TRUSTED_PROXIES" in warning
    assert "198.51.100.1" not in warning, "any client can send that"
    assert ask("203.0.113.9", "198.51.100.1") == []
    assert ask("203.0.113.9", None) == ask("10.0.0.1", "198.51.100.1") == ask("", "198.51.100.1") == []
    assert [len(ask(f"203.0.113.{number}", "6.6.6.6")) for number in range(10, 14)] == [1, 1, 0, 0]
    monkeypatch.setattr(request_actor, "WARN_INTERVAL_SECONDS", 0.0)
    assert len(ask("203.0.113.9", "198.51.100.1")) == 5
