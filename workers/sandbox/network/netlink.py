"""Network namespace of a slot: replaced after each run that used it, with blocked address ranges.

Invariant: after `block_ranges` returns, no packet can be sent to these ranges. A prohibit route alone is not enough:
for a socket bound to an interface (SO_BINDTODEVICE, IP_MULTICAST_IF) the kernel then assumes a neighbour on the link. A
blocking XFRM policy applies to every packet, so each range gets both.

Standard library only: the launcher loads this file by its path. Only `local_ranges` is used by the worker, and needs no
privileges.
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

ANSWER_TIMEOUT_SECONDS = 5.0
BUFFER_BYTES = 262_144
NETLINK_XFRM = 6

NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLM_F_CREATE_NEW = 0x400 | 0x200  # NLM_F_CREATE and NLM_F_EXCL: an existing entry is an error
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
ALL_IPV6 = "::/0"  # runs have no IPv6

_libc = ctypes.CDLL(None, use_errno=True)


class NetworkNamespace:
    """This process's network namespace, which the next run uses."""

    def __init__(self) -> None:
        self._renew()
        self._initial_counters = self._read_counters()
        self._sockets = self._count_sockets()

    def in_use(self) -> bool:
        """Return whether sockets remain: one in flight on another socket outlives its sender."""
        return self._count_sockets() > self._sockets

    def close(self, unroutable: Sequence[str], unsendable: Sequence[str]) -> None:
        """Block these ranges for the next run, which has a network."""
        self._closed = True
        block_ranges(unroutable, unsendable)

    def refresh(self) -> None:
        """Replace the namespace if a run used it, with its leftovers such as ports in TIME_WAIT."""
        if self._closed or self._read_counters() != self._initial_counters:
            self._renew()

    def _renew(self) -> None:
        if _libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
        bring_loopback_up()
        self._closed = False

    def _count_sockets(self) -> int:
        return int(Path("/proc/self/net/sockstat").read_bytes().split(None, 3)[2])

    def _read_counters(self) -> tuple[bytes, ...]:
        """Return the kernel's counters, which show any use of the network, even of the loopback.

        Flow labels are listed too, as they remain without a packet or a socket.
        """
        files = [Path(f"/proc/self/net/{name}") for name in ("dev", "snmp", "snmp6", "sockstat", "ip6_flowlabel")]
        return tuple(file.read_bytes() for file in files if file.exists())  # a kernel may be built without IPv6


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def block_ranges(unroutable: Iterable[str], unsendable: Iterable[str]) -> None:
    """Prohibit routes to the first and packets to the second ranges, all IPv4 and without duplicates.

    IPv6 becomes unroutable as well. Raise OSError if the kernel refuses any of it.
    """
    _send_requests(socket.NETLINK_ROUTE, RTM_NEWROUTE, [_prohibit_route(range_) for range_ in unroutable])
    with contextlib.suppress(OSError):  # a kernel without IPv6, which slirp4netns does not forward anyway
        _send_requests(socket.NETLINK_ROUTE, RTM_NEWROUTE, [_prohibit_route(ALL_IPV6)])
    _send_requests(NETLINK_XFRM, XFRM_MSG_NEWPOLICY, [_block_policy(range_) for range_ in unsendable])


def local_ranges() -> list[str]:
    """Return every IPv4 range that is local to this network namespace."""
    with _open_netlink(socket.NETLINK_ROUTE) as channel:
        question = ROUTE.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
        channel.send(_encode_message(RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 1, question))
        found = set()
        for kind, body in _read_dump(channel):
            if kind != RTM_NEWROUTE:
                continue
            _, length, _, _, table, _, _, type_, _ = ROUTE.unpack_from(body)
            # only this table: transparent proxies use local routes for everything in other tables
            if (table, type_) == (RT_TABLE_LOCAL, RTN_LOCAL):
                address = dict(_decode_attributes(body[ROUTE.size :])).get(RTA_DST, bytes(4))
                found.add(f"{socket.inet_ntop(socket.AF_INET, address)}/{length}")
    return sorted(found)


def _prohibit_route(range_: str) -> bytes:
    network = ipaddress.ip_network(range_)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    header = ROUTE.pack(family, network.prefixlen, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_PROHIBIT, 0)
    address = network.network_address.packed
    return header + struct.pack("=HH", 4 + len(address), RTA_DST) + address


def _block_policy(range_: str) -> bytes:
    network = ipaddress.IPv4Network(range_)
    selector = (
        *(network.network_address.packed, b"", 0, 0, 0, 0),
        *(socket.AF_INET, network.prefixlen, 0, 0, 0, 0),
    )
    lifetimes = (NO_LIMIT,) * 4 + (0,) * 4
    return POLICY.pack(*selector, *lifetimes, *(0,) * 4, 0, 0, XFRM_POLICY_OUT, XFRM_POLICY_BLOCK, 0, 0)


def _send_requests(protocol: int, kind: int, bodies: list[bytes]) -> None:
    """Send all requests at once and read the response to each."""
    if not bodies:
        return
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE_NEW
    with _open_netlink(protocol) as channel:
        channel.send(
            b"".join(_encode_message(kind, flags, number, body) for number, body in enumerate(bodies, start=1))
        )
        acknowledged = 0
        while acknowledged < len(bodies):
            acknowledged += sum(1 for _ in _decode_messages(channel.recv(BUFFER_BYTES)))


def _open_netlink(protocol: int) -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    channel.settimeout(ANSWER_TIMEOUT_SECONDS)
    return channel


def _encode_message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    message = HEADER.pack(HEADER.size + len(body), kind, flags, number, 0) + body
    return message + bytes(-len(message) % 4)


def _read_dump(channel: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a dump."""
    while True:
        for kind, body in _decode_messages(channel.recv(BUFFER_BYTES)):
            if kind == NLMSG_DONE:
                return
            yield kind, body


def _decode_messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= HEADER.size:
        length, kind = HEADER.unpack_from(data)[:2]
        body = data[HEADER.size : length]
        if kind == NLMSG_ERROR and (error := struct.unpack_from("=i", body)[0]):
            raise OSError(-error, os.strerror(-error))
        yield kind, body
        data = data[length + -length % 4 :]


def _decode_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:length]
        data = data[max(length + -length % 4, 4) :]
