"""The network namespace of a slot: new after each run that used it, and closed to some addresses if one has a way out.

Invariant: a range that `close_ranges` returned for cannot be sent to. A prohibit route alone does not give that: where
routing refuses, a socket that is bound to an interface (SO_BINDTODEVICE, IP_MULTICAST_IF) takes the address for a
neighbour's, and only the far end's silence stands in its way. A blocking XFRM policy is asked about every packet, so
each range gets both.

Standard library only: the launcher loads this file by its path, for the slots that own the namespaces. Only
`local_ranges` is for the worker, and needs no privileges.
"""

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ANSWER_SECONDS = 5.0
ANSWER_BYTES = 262_144
NETLINK_XFRM = 6

NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLM_F_CREATE_NEW = 0x400 | 0x200  # NLM_F_CREATE, and NLM_F_EXCL: what is there already is an error
NLMSG_ERROR, NLMSG_DONE = 2, 3
HEADER = struct.Struct("=IHHII")

RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTA_DST = 1
RT_TABLE_MAIN, RT_TABLE_LOCAL, RTPROT_STATIC, RTN_LOCAL, RTN_PROHIBIT = 254, 255, 4, 2, 8
ROUTE = struct.Struct("=BBBBBBBBI")  # family, dst_len, src_len, tos, table, protocol, scope, type, flags

XFRM_MSG_NEWPOLICY = 0x13
XFRM_POLICY_OUT, XFRM_POLICY_BLOCK = 1, 1
NO_LIMIT = 2**64 - 1
POLICY = struct.Struct(
    "=16s16sHHHHHBBB3xiI"  # selector: daddr, saddr, ports and masks, family, prefix lengths, protocol, ifindex, uid
    "8Q"  # lifetimes: bytes, packets, since added, since used
    "4Q"  # used so far
    "IIBBBB4x"  # priority, index, direction, action, flags, share
)

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
NO_IPV6 = "::/0"  # there is no way out for IPv6 at all

_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """The network namespace of the next run, which is this process's own."""

    def __init__(self) -> None:
        self._renew()
        self._untouched = self._traces()
        self._sockets = self._sockets_used()

    def in_use(self) -> bool:
        """Whether it has sockets: those that were on their way through each other outlive who sent them."""
        return self._sockets_used() > self._sockets

    def close(self, unroutable: Sequence[str], unsendable: Sequence[str]) -> None:
        """The next run is to have a way out, and must not reach these."""
        self._closed = True
        close_ranges(unroutable, unsendable)

    def refresh(self) -> None:
        """What a run left in the old one, like ports that wait to be free, goes with it."""
        if self._closed or self._traces() != self._untouched:
            self._renew()

    def _renew(self) -> None:
        if _libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
        bring_loopback_up()
        self._closed = False

    def _sockets_used(self) -> int:
        return int(Path("/proc/self/net/sockstat").read_bytes().split(None, 3)[2])

    def _traces(self) -> tuple[bytes, ...]:
        """Whatever was sent, to itself or to nowhere, is counted here; a port that was never used leaves nothing.

        A label of flows is the one thing that stays without a packet or a socket.
        """
        files = [Path(f"/proc/self/net/{name}") for name in ("dev", "snmp", "snmp6", "sockstat", "ip6_flowlabel")]
        return tuple(file.read_bytes() for file in files if file.exists())  # a kernel may be built without IPv6


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def close_ranges(unroutable: Iterable[str], unsendable: Iterable[str]) -> None:
    """Prohibit the routes to the first and the packets to the second, each a list of IPv4 ranges without doubles.

    All IPv6 becomes unroutable, too. Raise OSError if the kernel refuses any of it.
    """
    _ask(socket.NETLINK_ROUTE, RTM_NEWROUTE, [_prohibit(range_) for range_ in unroutable])
    with contextlib.suppress(OSError):  # a kernel without IPv6 has nothing to close, and nothing carries it out anyway
        _ask(socket.NETLINK_ROUTE, RTM_NEWROUTE, [_prohibit(NO_IPV6)])
    _ask(NETLINK_XFRM, XFRM_MSG_NEWPOLICY, [_block(range_) for range_ in unsendable])


def local_ranges() -> list[str]:
    """Every IPv4 range that this network namespace takes for itself: its addresses, and what is routed to them."""
    with _open(socket.NETLINK_ROUTE) as channel:
        question = ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
        channel.send(_message(RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 1, question))
        found = set()
        for kind, body in _answers(channel):
            if kind != RTM_NEWROUTE:
                continue
            _, length, _, _, table, _, _, type_, _ = ROUTE.unpack_from(body)
            # only this table: others send everything to a transparent proxy that way
            if (table, type_) == (RT_TABLE_LOCAL, RTN_LOCAL):
                address = dict(_attributes(body[ROUTE.size :])).get(RTA_DST, bytes(4))
                found.add(f"{socket.inet_ntop(socket.AF_INET, address)}/{length}")
    return sorted(found)


def _prohibit(range_: str) -> bytes:
    network = ipaddress.ip_network(range_)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    header = ROUTE.pack(family, network.prefixlen, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_PROHIBIT, 0)
    address = network.network_address.packed
    return header + struct.pack("=HH", 4 + len(address), RTA_DST) + address


def _block(range_: str) -> bytes:
    network = ipaddress.IPv4Network(range_)
    selector = (
        *(network.network_address.packed, b"", 0, 0, 0, 0),
        *(socket.AF_INET, network.prefixlen, 0, 0, 0, 0),
    )
    lifetimes = (NO_LIMIT,) * 4 + (0,) * 4
    return POLICY.pack(*selector, *lifetimes, *(0,) * 4, 0, 0, XFRM_POLICY_OUT, XFRM_POLICY_BLOCK, 0, 0)


def _ask(protocol: int, kind: int, bodies: list[bytes]) -> None:
    """Send all at once and read an answer for each."""
    if not bodies:
        return
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE_NEW
    with _open(protocol) as channel:
        channel.send(b"".join(_message(kind, flags, number, body) for number, body in enumerate(bodies, start=1)))
        answered = 0
        while answered < len(bodies):
            answered += sum(1 for _ in _answers_in(channel.recv(ANSWER_BYTES)))


def _open(protocol: int) -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    channel.settimeout(ANSWER_SECONDS)
    return channel


def _message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    message = HEADER.pack(HEADER.size + len(body), kind, flags, number, 0) + body
    return message + bytes(-len(message) % 4)


def _answers(channel: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The parts of a dump, up to its end."""
    while True:
        for kind, body in _answers_in(channel.recv(ANSWER_BYTES)):
            if kind == NLMSG_DONE:
                return
            yield kind, body


def _answers_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)[:2]
        body = data[HEADER.size : length]
        if kind == NLMSG_ERROR and (error := struct.unpack_from("=i", body)[0]):
            raise OSError(-error, os.strerror(-error))
        yield kind, body
        data = data[length + -length % 4 :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:length]
        data = data[max(length + -length % 4, 4) :]
