"""Two network namespaces: the machine, which this process enters, and outside, which is everywhere else.

Invariant: no packet leaves the two. The outside responds at every address and records the requests, as do the
listeners on the machine. Standard library only, as it also runs as an ordinary user.
"""

import contextlib
import ctypes
import os
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from workers.sandbox.network import netlink

PORT, DNS_PORT = 8080, 53
PUBLIC = "1.2.3.4"
OWN_PUBLIC, NEXT_DOOR = "52.0.0.2", "52.0.0.1"  # the machine's address and its gateway
OWN_PRIVATE = "10.7.7.7"
RESOLVER = "10.9.8.7"  # the machine's resolver, in a private range
GROUP = "224.0.0.251"
NAME = "decoy.example"

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
RTM_NEWLINK, RTM_SETLINK, RTM_NEWADDR = 16, 19, 20
RTN_UNICAST, LOOPBACK_INDEX = 1, 1
IP_PKTINFO = 8  # unnamed in Python before 3.13
LIBC = ctypes.CDLL(None, use_errno=True)


class World:
    """`asked` records (where, protocol, address) of every request."""

    def __init__(self) -> None:
        self.asked: set[tuple[str, str, str]] = set()
        self._selector = selectors.DefaultSelector()
        self._names: dict[socket.socket, str] = {}

    def enter(self, directory: Path) -> None:
        """Enter for good; call it while the process has one thread."""
        uid, gid = os.getuid(), os.getgid()
        _call("unshare", (0 if uid == 0 else CLONE_NEWUSER) | CLONE_NEWNS | CLONE_NEWNET)
        if uid != 0:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        _choose_resolver(directory / "resolv.conf")
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        outside_routes = netlink._open_netlink(socket.NETLINK_ROUTE)
        netlink.bring_loopback_up()
        sockets = list(self._listen("outside"))
        _call("unshare", CLONE_NEWNET)
        machine_routes = netlink._open_netlink(socket.NETLINK_ROUTE)
        netlink.bring_loopback_up()
        _tell(machine_routes, RTM_NEWLINK, _veth("eth0", outside))
        here, there = socket.if_nametoindex("eth0"), _index_in(outside, "eth0")
        for routes, index, addresses in (
            (machine_routes, here, [f"{OWN_PUBLIC}/24", f"{OWN_PRIVATE}/32"]),
            (outside_routes, there, [f"{NEXT_DOOR}/24"]),
        ):
            _tell(routes, RTM_SETLINK, struct.pack("=BxHiII", 0, 0, index, 1, 1))
            for address in addresses:
                _tell(routes, RTM_NEWADDR, _address(address, index))
        _tell(
            machine_routes,
            netlink.RTM_NEWROUTE,
            _route("0.0.0.0/0", netlink.RT_TABLE_MAIN, RTN_UNICAST, here, NEXT_DOOR),
        )
        local = netlink.RT_TABLE_LOCAL
        _tell(outside_routes, netlink.RTM_NEWROUTE, _route("0.0.0.0/0", local, netlink.RTN_LOCAL, LOOPBACK_INDEX))
        _tell(outside_routes, netlink.RTM_NEWROUTE, _route(f"{OWN_PUBLIC}/32", local, RTN_UNICAST, there))
        membership = socket.inet_aton(GROUP) + bytes(4) + struct.pack("=i", there)
        sockets[1].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        list(self._listen("machine"))
        threading.Thread(target=self._serve, daemon=True).start()

    def _listen(self, where: str) -> Iterator[socket.socket]:
        for kind, port in ((socket.SOCK_STREAM, PORT), (socket.SOCK_DGRAM, PORT), (socket.SOCK_DGRAM, DNS_PORT)):
            listener = socket.socket(socket.AF_INET, kind)
            listener.bind(("0.0.0.0", port))  # noqa: S104 - all there is in this namespace
            if kind == socket.SOCK_STREAM:
                listener.listen()
            else:
                listener.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            self._names[listener] = where
            self._selector.register(listener, selectors.EVENT_READ)
            yield listener

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                listener = key.fileobj
                assert isinstance(listener, socket.socket)
                with contextlib.suppress(OSError):
                    if listener.type == socket.SOCK_STREAM:
                        self._echo(listener)
                    else:
                        self._answer(listener)

    def _echo(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            self.asked.add((self._names[listener], "tcp", connection.getsockname()[0]))
            connection.settimeout(5)
            connection.sendall(b"echo " + connection.recv(4096))

    def _answer(self, listener: socket.socket) -> None:
        data, ancillary, _, sender = listener.recvmsg(4096, 256)
        destination = next(content[8:12] for _, kind, content in ancillary if kind == IP_PKTINFO)
        port = listener.getsockname()[1]
        protocol = "dns" if port == DNS_PORT else "udp"
        self.asked.add((self._names[listener], protocol, socket.inet_ntoa(destination)))
        reply = _resolve(data) if port == DNS_PORT else b"echo " + data
        source = (socket.IPPROTO_IP, IP_PKTINFO, bytes(4) + destination + bytes(4))
        listener.sendmsg([reply], [source], 0, sender)


def _resolve(query: bytes) -> bytes:
    """Resolve every name to PUBLIC."""
    question = query[12 : query.index(b"\0", 12) + 5]
    wants_address = question[-4:-2] == b"\0\1"
    header = query[:2] + b"\x81\x80" + struct.pack("!HHHH", 1, int(wants_address), 0, 0)
    answer = b"\xc0\x0c\0\1\0\1" + struct.pack("!IH", 60, 4) + socket.inet_aton(PUBLIC)
    return header + question + (answer if wants_address else b"")


def _choose_resolver(file: Path) -> None:
    file.write_text(f"nameserver {RESOLVER}\n")
    _call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    _call("mount", bytes(file), os.fsencode(os.path.realpath("/etc/resolv.conf")), None, MS_BIND, None)


def _veth(name: str, peer_namespace: int) -> bytes:
    peer = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + _attribute(3, name.encode() + b"\0")
    peer += _attribute(28, struct.pack("=I", peer_namespace))
    info = _attribute(1, b"veth\0") + _attribute(2, _attribute(1, peer))
    return struct.pack("=BxHiII", 0, 0, 0, 0, 0) + _attribute(3, name.encode() + b"\0") + _attribute(18, info)


def _address(range_: str, index: int) -> bytes:
    address, length = range_.split("/")
    packed = socket.inet_aton(address)
    return (
        struct.pack("=BBBBI", socket.AF_INET, int(length), 0, 0, index) + _attribute(2, packed) + _attribute(1, packed)
    )


def _route(range_: str, table: int, kind: int, index: int, gateway: str | None = None) -> bytes:
    address, length = range_.split("/")
    scope = 254 if kind == netlink.RTN_LOCAL else 0 if gateway else 253
    header = netlink.ROUTE.pack(socket.AF_INET, int(length), 0, 0, table, 4, scope, kind, 0)
    via = _attribute(5, socket.inet_aton(gateway)) if gateway else b""
    return header + _attribute(1, socket.inet_aton(address)) + _attribute(4, struct.pack("=I", index)) + via


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _tell(channel: socket.socket, kind: int, body: bytes) -> None:
    flags = netlink.NLM_F_REQUEST | netlink.NLM_F_ACK | netlink.NLM_F_CREATE_NEW
    channel.send(netlink._encode_message(kind, flags, 1, body))
    list(netlink._decode_messages(channel.recv(65536)))


def _index_in(namespace: int, name: str) -> int:
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    _call("setns", namespace, CLONE_NEWNET)
    try:
        return socket.if_nametoindex(name)
    finally:
        _call("setns", here, CLONE_NEWNET)
        os.close(here)


def _call(name: str, *arguments: object) -> None:
    if getattr(LIBC, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
