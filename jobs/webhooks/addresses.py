"""Where webhooks may be sent; values in, values out.

Invariant: what is not on the public internet is reached only where the operator named its range. What counts are the
addresses that a name stands for at the moment of sending, never how the name is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

MAX_URL_LENGTH = 2000
MAX_HOST_LENGTH = 253  # of a name that can be looked up
PORTS = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Written out: what Python calls global differs between its releases.
_NOT_PUBLIC_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers', and some clouds' metadata
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's metadata, which looks public
            "169.254.0.0/16",  # link-local: most clouds' metadata
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments, Oracle's metadata among them
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of old
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",
        ),
    )
)
# Everything else is local, mapped from or translated to IPv4, multicast, or nobody's yet.
_PUBLIC_V6 = IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, which wraps IPv4, among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which wraps IPv4
            "3fff::/20",
        ),
    )
)


class AddressRefused(ValueError):
    """The address is not one that webhooks are sent to."""


@dataclass(frozen=True, slots=True)
class Target:
    scheme: str
    host: str
    port: int
    path: str  # with its query, as it is sent

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reach:
    """What the operator says: ranges besides the public ones, and whether plain http will do."""

    networks: tuple[Network, ...] = ()
    http: bool = False

    def parse_url(self, url: str) -> Target:
        """ValueError says what is wrong with it, in words for who wrote it."""
        # Before anything is taken apart: urlsplit drops line ends and tabs, and a space would end the request's line.
        if len(url) > MAX_URL_LENGTH or not all("!" <= character <= "~" for character in url) or "\\" in url:
            raise ValueError(
                f"Write an address of at most {MAX_URL_LENGTH} characters, all of them printable ASCII without blanks"
                " and backslashes; other letters are written as %XX, and as xn-- in a host's name."
            )
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError("This is no address; write it such as https://example.com/hook.") from None
        schemes = ("https", "http") if self.http else ("https",)
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError(f"The address must begin with {' or '.join(f'{each}://' for each in schemes)} and a host.")
        if parts.username is not None or parts.password is not None:
            raise ValueError("The address has a user or a password in it; check the signature of what comes instead.")
        if "#" in url:
            raise ValueError("The address has a fragment (#), which is never sent; leave it out.")
        if "%" in parts.hostname or port == 0:
            raise ValueError("This is no address; write it such as https://example.com/hook.")
        if len(parts.hostname) > MAX_HOST_LENGTH:
            raise ValueError(f"The host's name is longer than {MAX_HOST_LENGTH} characters, so no such host can be.")
        path = parts.path or "/"
        if parts.query:
            path += f"?{parts.query}"
        return Target(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path)

    def check(self, addresses: Iterable[str]) -> list[str]:
        """All of them, if webhooks may be sent to every one: a name that also stands for another is not trusted."""
        checked = []
        for written in addresses:
            address = ip_address(written.partition("%")[0])
            if not self._allows(address):
                # Not told which: who asks must not learn what names stand for inside.
                raise AddressRefused(
                    "The host is not on the public internet; an operator may allow its range with"
                    " PUNCTUAL_WEBHOOK_NETWORKS."
                )
            checked.append(str(address))
        if not checked:
            raise AddressRefused("The host has no address.")
        return checked

    def _allows(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self.networks)


def parse_networks(words: Iterable[str]) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(word) for word in words)
    except ValueError as error:
        raise ValueError(f"{error}: write ranges such as 10.1.0.0/16 or fd00:1::/64") from error


def is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)
