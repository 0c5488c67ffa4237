"""Addresses that webhooks may be sent to; values in, values out.

Invariant: an address outside the public internet is allowed only in a range that the operator listed. The check is on
the addresses that a name resolves to at the moment of sending, never on the name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

MAX_URL_LENGTH = 2000
MAX_HOST_LENGTH = 253  # longest name that DNS resolves
PORTS = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Written out because is_global differs between releases of Python.
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
            "192.88.99.0/24",  # 6to4 relays, deprecated
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",
        ),
    )
)
# Everything else is local, mapped from or translated to IPv4, multicast, or unassigned.
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
    """Webhooks may not be sent to this address."""


@dataclass(frozen=True, slots=True)
class Target:
    scheme: str
    host: str
    port: int
    path: str  # including the query

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Ranges allowed in addition to public addresses, and whether plain http is allowed."""

    networks: tuple[Network, ...] = ()
    http: bool = False

    def parse_url(self, url: str) -> Target:
        """Return the target; the message of a ValueError is for the user."""
        # Checked before parsing: urlsplit drops line ends and tabs, and a space would end the request line.
        if len(url) > MAX_URL_LENGTH or not all("!" <= character <= "~" for character in url) or "\\" in url:
            raise ValueError(
                f"The URL must have at most {MAX_URL_LENGTH} characters, all printable ASCII without spaces and"
                " backslashes; write others as %XX, and as xn-- in the host's name."
            )
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError("This is not a valid URL; write it as https://example.com/hook.") from None
        schemes = ("https", "http") if self.http else ("https",)
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError(f"The URL must begin with {' or '.join(f'{each}://' for each in schemes)} and a host.")
        if parts.username is not None or parts.password is not None:
            raise ValueError("The URL contains a user or a password; verify the signature of deliveries instead.")
        if "#" in url:
            raise ValueError("The URL has a fragment (#), which is never sent; leave it out.")
        if "%" in parts.hostname or port == 0:
            raise ValueError("This is not a valid URL; write it as https://example.com/hook.")
        if len(parts.hostname) > MAX_HOST_LENGTH:
            raise ValueError(f"The host's name is longer than {MAX_HOST_LENGTH} characters, which DNS does not allow.")
        path = parts.path or "/"
        if parts.query:
            path += f"?{parts.query}"
        return Target(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path)

    def check(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses if all of them are allowed, else raise AddressRefused."""
        checked = []
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if not self._allows(address):
                # The message does not name the address, which would reveal what internal names resolve to.
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


def parse_networks(ranges: Iterable[str]) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text) for text in ranges)
    except ValueError as error:
        raise ValueError(f"{error}: write ranges such as 10.1.0.0/16 or fd00:1::/64") from error


def is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)
