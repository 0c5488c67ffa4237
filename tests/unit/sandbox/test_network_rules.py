"""What a run with a network must not reach, whatever the machine and the operator say."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from hypothesis import given
from hypothesis import strategies as st

from workers.sandbox.network_rules import (
    BLOCKED,
    FORWARDER,
    GATEWAY,
    UNTOUCHABLE,
    NetworkRules,
    blocked_ranges,
    is_untouchable,
)

FAMOUS = [int(network.network_address) for network in (*BLOCKED, GATEWAY, FORWARDER)]


def network(address: int, length: int) -> IPv4Network:
    return IPv4Network((address >> (32 - length) << (32 - length), length))


addresses = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from(FAMOUS))
networks = st.builds(network, addresses, st.integers(1, 32))
# Of ranges that an operator may allow none is wider than a /8, and whole /8 are untouchable or not.
allowed_ranges = st.lists(st.builds(network, addresses, st.integers(8, 32)), max_size=3).map(
    lambda found: tuple(each for each in found if not is_untouchable(each))
)


def parsed(ranges: list[str]) -> list[IPv4Network]:
    return list(map(IPv4Network, ranges))


def holds(ranges: list[str], address: IPv4Address) -> bool:
    return any(address in network for network in parsed(ranges))


@given(st.lists(networks, max_size=3), allowed_ranges, st.booleans(), addresses)
def test_each_address_is_refused_or_not_as_the_rules_say(
    own: list[IPv4Network], allowed: tuple[IPv4Network, ...], named: bool, address: int
) -> None:
    rules = NetworkRules(allowed, (IPv4Address("9.9.9.9"),) if named else ())
    blocks = blocked_ranges(own, rules)
    unsendable, unroutable = parsed(blocks.unsendable), parsed(blocks.unroutable)
    for one in (IPv4Address(address), *(n.network_address for n in (*own, *allowed, *BLOCKED, GATEWAY, FORWARDER))):
        by_default = any(one in n for n in BLOCKED) and not any(one in n for n in allowed)
        wanted = (
            any(one in n for n in UNTOUCHABLE)
            or any(one in n for n in own if n not in allowed)
            or one in GATEWAY
            or by_default
        )
        asked_for_names = one in FORWARDER and not named
        assert any(one in n for n in unsendable) == (wanted and not asked_for_names), one
        if one not in GATEWAY:
            assert any(one in n for n in unroutable) == (wanted and not asked_for_names), one


@given(st.lists(networks, max_size=3), allowed_ranges)
def test_no_range_comes_twice(own: list[IPv4Network], allowed: tuple[IPv4Network, ...]) -> None:
    """The kernel refuses doubles."""
    blocks = blocked_ranges(own, NetworkRules(allowed))
    for ranges in (blocks.unsendable, blocks.unroutable):
        assert parsed(ranges) == list(collapse_addresses(parsed(ranges)))


def test_the_gateway_can_be_routed_to_and_nothing_can_be_sent_to_it() -> None:
    blocks = blocked_ranges([], NetworkRules((IPv4Network("10.0.0.0/8"),)))
    gateway = GATEWAY.network_address
    assert (holds(blocks.unroutable, gateway), holds(blocks.unsendable, gateway)) == (False, True)


def test_what_everybody_expects_is_blocked() -> None:
    blocks = blocked_ranges([IPv4Network("52.0.0.2/32")], NetworkRules())
    for address in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "10.0.0.1", "192.168.0.1", "52.0.0.2"):
        assert holds(blocks.unsendable, IPv4Address(address)), address
    for address in ("1.1.1.1", "52.0.0.3", "10.0.2.3"):
        assert not holds(blocks.unsendable, IPv4Address(address)), address


def test_programs_are_told_whom_to_ask() -> None:
    assert NetworkRules().resolver_file == "nameserver 10.0.2.3\n"
    assert NetworkRules.parse([], ["9.9.9.9", "1.1.1.1"]).resolver_file == "nameserver 9.9.9.9\nnameserver 1.1.1.1\n"
