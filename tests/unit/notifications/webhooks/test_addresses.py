"""Addresses that are not public are refused, however they are written."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from jobs.notifications.webhooks.address_policy import AddressPolicy, AddressRefused, Target, is_public, parse_networks
from jobs.notifications.webhooks.sending import WebhookRequest, send_webhook

PRIVATE = [
    "0.0.0.1", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "100.100.100.200",
    "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1",
    "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1",
    "2002:a9fe:a9fe::1", "3fff::1", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
    "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.0.1",
    "198.20.0.0", "223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2a00:1450::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_address_is_refused(address: str) -> None:
    assert not is_public(ip_address(address))
    with pytest.raises(AddressRefused, match="PUNCTUAL_WEBHOOK_NETWORKS") as refusal:
        AddressPolicy().check(["8.8.8.8", address])
    assert address not in str(refusal.value), "the message does not reveal what a name resolves to"


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_is_allowed(address: str) -> None:
    assert is_public(ip_address(address))
    assert AddressPolicy().check([address]) == [address]


def test_scope_id_does_not_hide_an_address() -> None:
    with pytest.raises(AddressRefused):
        AddressPolicy().check(["fe80::1%eth0"])


def test_host_without_an_address_is_refused() -> None:
    with pytest.raises(AddressRefused, match="no address"):
        AddressPolicy().check([])


def test_only_listed_ranges_are_allowed_in_addition() -> None:
    policy = AddressPolicy(parse_networks(["10.1.0.0/16", "fd00:1::/64"]))
    assert policy.check(["10.1.2.3", "fd00:1::5", "8.8.8.8"]) == ["10.1.2.3", "fd00:1::5", "8.8.8.8"]
    for address in ("10.2.0.1", "fd00:2::5", "127.0.0.1", "::ffff:10.1.2.3"):
        with pytest.raises(AddressRefused):
            policy.check([address])
    for wrong in ("10.1.0.1/16", "example.com", "10.1.0.0/33"):
        with pytest.raises(ValueError, match="write ranges such as"):
            parse_networks([wrong])


SPELLINGS = [
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0x7f.1",
    "0",
    "127.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
]


@pytest.mark.parametrize("host", SPELLINGS)
def test_loopback_in_any_spelling_is_refused_before_connecting(host: str) -> None:
    policy = AddressPolicy(http=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        target = policy.parse_url(f"http://{host}:{server.getsockname()[1]}/")
        response = send_webhook(WebhookRequest(target, {}, b"{}"), policy=policy)
        assert "public internet" in response.error
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", Target("https", "example.com", 443, "/")),
        ("https://EXAMPLE.com:8443/a/b?c=d&e", Target("https", "example.com", 8443, "/a/b?c=d&e")),
        ("https://[2606:4700::1111]/x", Target("https", "2606:4700::1111", 443, "/x")),
        ("https://xn--bcher-kva.example/%C3%BC", Target("https", "xn--bcher-kva.example", 443, "/%C3%BC")),
    ],
)
def test_url_is_parsed(url: str, target: Target) -> None:
    assert AddressPolicy().parse_url(url) == target


def test_authority_omits_the_default_port() -> None:
    policy = AddressPolicy(http=True)
    authorities = {
        url: policy.parse_url(url).authority for url in ("https://a", "http://a:80", "https://a:80", "https://[::1]:1")
    }
    assert list(authorities.values()) == ["a", "a", "a:80", "[::1]:1"]


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com", "//example.com", "http://example.com", "ftp://example.com", "file:///etc/passwd",
        "https://", "https:///path", "https://u@example.com", "https://u:p@example.com", "https://:@example.com",
        "https://example.com:0", "https://example.com:65536", "https://example.com:x", "https://example.com/#",
        "https://example.com/#a", "https://exa mple.com", "https://example.com/a b", "https://example.com/\r\nX: y",
        "https://example.com\t", "https://example.com/\x00", "https://bücher.example", "https://example.com\\@evil",
        "https://[fe80::1%25eth0]/", "https://[::1", "https://example.com/\ud800", "https://e/" + "x" * 2000,
        "gopher://127.0.0.1:6379/_x", "javascript:alert(1)", "https://" + "a." * 125 + "exam",
    ],
)  # fmt: skip
def test_invalid_url_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z] .*\."):
        AddressPolicy().parse_url(url)
