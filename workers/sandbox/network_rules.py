"""Which addresses a run with a network must not reach; values in, values out.

Invariant: what is blocked here covers everything private, every cloud's metadata and the machine's own addresses,
unless the operator named it; loopback, multicast and broadcast are blocked whatever the operator named.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

INNER_RANGE = "10.0.2.0/24"  # the run's own network, of which only these two answer
GATEWAY = IPv4Network("10.0.2.2/32")
FORWARDER = IPv4Network("10.0.2.3/32")  # answers names by asking the machine's resolver

# Loopback would be the machine's own; the others mean whoever listens nearby.
UNTOUCHABLE = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")))
BLOCKED = (
    *UNTOUCHABLE,
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
    IPv4Network("192.88.99.0/24"),  # relays of old
    IPv4Network("198.18.0.0/15"),  # benchmarks
)


@dataclass(frozen=True)
class NetworkRules:
    """What the operator says: what runs may reach nevertheless, and whom they ask for names."""

    allowed: tuple[IPv4Network, ...] = ()
    resolvers: tuple[IPv4Address, ...] = ()  # none: the machine's, through the forwarder

    @classmethod
    def parse(cls, allowed: Iterable[str], resolvers: Iterable[str]) -> "NetworkRules":
        """From ranges and addresses as an operator writes them; raise ValueError with what is wrong."""
        try:
            ranges = tuple(map(IPv4Network, allowed))
        except ValueError as error:
            raise ValueError(f"{error}: write IPv4 ranges such as 10.1.0.0/16 or 192.168.7.9/32") from error
        for network in ranges:
            if is_untouchable(network):
                raise ValueError(f"{network} has loopback, multicast or reserved addresses in it, which stay blocked")
        try:
            addresses = tuple(map(IPv4Address, resolvers))
        except ValueError as error:
            raise ValueError(f"{error}: write the IPv4 addresses of resolvers") from error
        for address in addresses:
            if any(address in network for network in blocked_ranges([], cls(ranges)).ranges):
                raise ValueError(f"{address} is blocked for runs: allow it with PUNCTUAL_WORKER_NETWORK_ALLOW as well")
        return cls(ranges, addresses)

    @property
    def resolver_file(self) -> str:
        named = self.resolvers or (FORWARDER.network_address,)
        return "".join(f"nameserver {address}\n" for address in named)


@dataclass(frozen=True)
class Blocks:
    """What one run is refused."""

    ranges: tuple[IPv4Network, ...]
    forwarder: bool  # whether it may ask the forwarder

    @property
    def unsendable(self) -> list[str]:
        return self._ranges_without([])

    @property
    def unroutable(self) -> list[str]:
        """Without the gateway: everything allowed is routed through it, and the kernel wants to see the way to it."""
        return self._ranges_without([GATEWAY])

    def _ranges_without(self, holes: list[IPv4Network]) -> list[str]:
        return list(map(str, _without(self.ranges, [*holes, *([FORWARDER] if self.forwarder else [])])))


def blocked_ranges(own: Iterable[IPv4Network], rules: NetworkRules) -> Blocks:
    """All that is blocked by default and not allowed, and the machine's own addresses but those that are named."""
    by_default = _without(BLOCKED, [network for network in rules.allowed if not is_untouchable(network)])
    its_own = [network for network in own if network not in rules.allowed]
    ranges = collapse_addresses([*by_default, *its_own, GATEWAY, *UNTOUCHABLE])
    return Blocks(tuple(ranges), forwarder=not rules.resolvers)


def is_untouchable(network: IPv4Network) -> bool:
    return any(network.overlaps(other) for other in UNTOUCHABLE)


def _without(ranges: Iterable[IPv4Network], holes: Iterable[IPv4Network]) -> list[IPv4Network]:
    left = list(ranges)
    for hole in holes:
        left = [part for network in left for part in _minus(network, hole)]
    return list(collapse_addresses(left))


def _minus(network: IPv4Network, hole: IPv4Network) -> Iterable[IPv4Network]:
    if hole.supernet_of(network):
        return []
    return network.address_exclude(hole) if network.supernet_of(hole) else [network]
