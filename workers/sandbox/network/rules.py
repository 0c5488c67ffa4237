"""The addresses that a run with a network must not reach; values in, values out.

Invariant: private ranges, cloud metadata and the machine's own addresses are blocked unless the operator allows them;
loopback, multicast and broadcast are always blocked.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

RUN_SUBNET = "10.0.2.0/24"  # the run's own network, where only the gateway and the forwarder respond
GATEWAY = IPv4Network("10.0.2.2/32")
DNS_FORWARDER = IPv4Network("10.0.2.3/32")  # forwards queries to the machine's resolver

# Loopback would be the machine's own; the others reach nearby machines.
ALWAYS_BLOCKED = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")))
BLOCKED_BY_DEFAULT = (
    *ALWAYS_BLOCKED,
    IPv4Network("10.0.0.0/8"),  # private
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv4Network("100.64.0.0/10"),  # carriers', and some clouds' metadata
    IPv4Network("169.254.0.0/16"),  # link-local: most clouds' metadata
    IPv4Network("168.63.129.16/32"),  # Azure's, which looks public
    IPv4Network("192.0.0.0/24"),  # protocol assignments, Oracle's metadata among them
    IPv4Network("192.0.2.0/24"),  # documentation
    IPv4Network("198.51.100.0/24"),
    IPv4Network("203.0.113.0/24"),
    IPv4Network("192.88.99.0/24"),  # deprecated 6to4 relays
    IPv4Network("198.18.0.0/15"),  # benchmarks
)


@dataclass(frozen=True)
class NetworkRules:
    """The operator's settings: additional ranges that runs may reach, and their DNS resolvers."""

    allowed: tuple[IPv4Network, ...] = ()
    resolvers: tuple[IPv4Address, ...] = ()  # empty: the machine's own, through the forwarder

    @classmethod
    def parse(cls, allowed: Iterable[str], resolvers: Iterable[str]) -> "NetworkRules":
        """Parse ranges and addresses; raise ValueError for the operator."""
        try:
            ranges = tuple(map(IPv4Network, allowed))
        except ValueError as error:
            raise ValueError(f"{error}: write IPv4 ranges such as 10.1.0.0/16 or 192.168.7.9/32") from error
        for network in ranges:
            if is_always_blocked(network):
                raise ValueError(f"{network} contains loopback, multicast or reserved addresses, which stay blocked")
        try:
            addresses = tuple(map(IPv4Address, resolvers))
        except ValueError as error:
            raise ValueError(f"{error}: write the IPv4 addresses of resolvers") from error
        for address in addresses:
            if any(address in network for network in build_blocklist([], cls(ranges)).ranges):
                raise ValueError(f"{address} is blocked for runs: allow it with PUNCTUAL_WORKER_NETWORK_ALLOW as well")
        return cls(ranges, addresses)

    @property
    def resolver_file(self) -> str:
        named = self.resolvers or (DNS_FORWARDER.network_address,)
        return "".join(f"nameserver {address}\n" for address in named)


@dataclass(frozen=True)
class Blocklist:
    """The ranges that one run must not reach."""

    ranges: tuple[IPv4Network, ...]
    forwarder: bool  # whether the run may use the DNS forwarder

    @property
    def unsendable(self) -> list[str]:
        return self._ranges_without([])

    @property
    def unroutable(self) -> list[str]:
        """Return the ranges without the gateway, which needs a route, as allowed traffic goes through it."""
        return self._ranges_without([GATEWAY])

    def _ranges_without(self, holes: list[IPv4Network]) -> list[str]:
        return list(map(str, _subtract(self.ranges, [*holes, *([DNS_FORWARDER] if self.forwarder else [])])))


def build_blocklist(own: Iterable[IPv4Network], rules: NetworkRules) -> Blocklist:
    """Return the default ranges and the machine's own addresses, minus those that the rules allow."""
    by_default = _subtract(BLOCKED_BY_DEFAULT, [network for network in rules.allowed if not is_always_blocked(network)])
    machine_ranges = [network for network in own if network not in rules.allowed]
    ranges = collapse_addresses([*by_default, *machine_ranges, GATEWAY, *ALWAYS_BLOCKED])
    return Blocklist(tuple(ranges), forwarder=not rules.resolvers)


def is_always_blocked(network: IPv4Network) -> bool:
    return any(network.overlaps(other) for other in ALWAYS_BLOCKED)


def _subtract(ranges: Iterable[IPv4Network], holes: Iterable[IPv4Network]) -> list[IPv4Network]:
    left = list(ranges)
    for hole in holes:
        left = [part for network in left for part in _exclude(network, hole)]
    return list(collapse_addresses(left))


def _exclude(network: IPv4Network, hole: IPv4Network) -> Iterable[IPv4Network]:
    if hole.supernet_of(network):
        return []
    return network.address_exclude(hole) if network.supernet_of(hole) else [network]
