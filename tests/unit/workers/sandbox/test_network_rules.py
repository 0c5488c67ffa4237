"""Blocklists for runs with a network, for all machines and settings."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers.sandbox.network.rules import (
    ALWAYS_BLOCKED,
    BLOCKED_BY_DEFAULT,
    DNS_FORWARDER,
    GATEWAY,
    NetworkRules,
    build_blocklist,
    is_always_blocked,
)

FAMOUS = [int(network.network_address) for network in (*BLOCKED_BY_DEFAULT, GATEWAY, DNS_FORWARDER)]


def network(address: int, length: int) -> IPv4Network:
    return IPv4Network((address >> (32 - length) << (32 - length), length))


addresses = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from(FAMOUS))
networks = st.builds(network, addresses, st.integers(1, 32))
# Operators may allow ranges up to a /8, and each /8 is entirely always-blocked or not.
allowed_ranges = st.lists(st.builds(network, addresses, st.integers(8, 32)), max_size=3).map(
    lambda found: tuple(each for each in found if not is_always_blocked(each))
)


def parsed(ranges: list[str]) -> list[IPv4Network]:
    return list(map(IPv4Network, ranges))


def holds(ranges: list[str], address: IPv4Address) -> bool:
    return any(address in network for network in parsed(ranges))


# On a busy machine Hypothesis mistakes a starved process for a slow strategy.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(networks, max_size=3), allowed_ranges, st.booleans(), addresses)
def test_addresses_are_blocked_as_the_rules_say(
    own: list[IPv4Network], allowed: tuple[IPv4Network, ...], named: bool, address: int
) -> None:
    rules = NetworkRules(allowed, (IPv4Address("9.9.9.9"),) if named else ())
    blocks = build_blocklist(own, rules)
    unsendable, unroutable = parsed(blocks.unsendable), parsed(blocks.unroutable)
    for one in (
        IPv4Address(address),
        *(n.network_address for n in (*own, *allowed, *BLOCKED_BY_DEFAULT, GATEWAY, DNS_FORWARDER)),
    ):
        by_default = any(one in n for n in BLOCKED_BY_DEFAULT) and not any(one in n for n in allowed)
        wanted = (
            any(one in n for n in ALWAYS_BLOCKED)
            or any(one in n for n in own if n not in allowed)
            or one in GATEWAY
            or by_default
        )
        asked_for_names = one in DNS_FORWARDER and not named
        assert any(one in n for n in unsendable) == (wanted and not asked_for_names), one
        if one not in GATEWAY:
            assert any(one in n for n in unroutable) == (wanted and not asked_for_names), one


@given(st.lists(networks, max_size=3), allowed_ranges)
def test_blocked_ranges_are_distinct(own: list[IPv4Network], allowed: tuple[IPv4Network, ...]) -> None:
    """The kernel refuses duplicates."""
    blocks = build_blocklist(own, NetworkRules(allowed))
    for ranges in (blocks.unsendable, blocks.unroutable):
        assert parsed(ranges) == list(collapse_addresses(parsed(ranges)))


def test_gateway_is_routable_but_not_sendable() -> None:
    blocks = build_blocklist([], NetworkRules((IPv4Network("10.0.0.0/8"),)))
    gateway = GATEWAY.network_address
    assert (holds(blocks.unroutable, gateway), holds(blocks.unsendable, gateway)) == (False, True)


def test_private_and_metadata_ranges_are_blocked() -> None:
    blocks = build_blocklist([IPv4Network("52.0.0.2/32")], NetworkRules())
    for address in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "10.0.0.1", "192.168.0.1", "52.0.0.2"):
        assert holds(blocks.unsendable, IPv4Address(address)), address
    for address in ("1.1.1.1", "52.0.0.3", "10.0.2.3"):
        assert not holds(blocks.unsendable, IPv4Address(address)), address


def test_resolver_file_lists_the_resolvers() -> None:
    assert NetworkRules().resolver_file == "nameserver 10.0.2.3\n"
    assert NetworkRules.parse([], ["9.9.9.9", "1.1.1.1"]).resolver_file == "nameserver 9.9.9.9\nnameserver 1.1.1.1\n"
