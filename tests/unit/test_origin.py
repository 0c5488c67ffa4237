"""Whose word counts about where a request comes from."""

from __future__ import annotations

import pytest
from django.test import RequestFactory
from pytest_django import Settings

from jobs.api.origin import address_of

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
def test_a_header_counts_as_far_as_trusted_proxies_wrote_it(
    settings: Settings, trusted: tuple[str, ...], remote: str, forwarded: str, address: str | None
) -> None:
    settings.PUNCTUAL_TRUSTED_PROXIES = trusted
    request = RequestFactory().get("/", REMOTE_ADDR=remote, headers={"X-Forwarded-For": forwarded})
    assert address_of(request) == address
