"""Leaves what needs no packet: a label of flows that stays for a while, sockets that hold each other, locks."""

import array
import contextlib
import fcntl
import os
import socket
import struct

from attack import held

IPV6_FLOWLABEL_MGR, CREATE = 32, 1
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as labelled:
    address = socket.inet_pton(socket.AF_INET6, "::1")
    # any label, shared with nobody, to linger for as long as it may
    request = struct.pack("=16s4sBBHHHI", address, socket.htonl(0x12345).to_bytes(4, "little"), 0, 1, CREATE, 60, 60, 0)
    with contextlib.suppress(OSError):
        labelled.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, request)
named = socket.socket(socket.AF_UNIX)
named.bind("\0left-in-a-circle")
named.listen()
one, other = socket.socketpair()
descriptors = array.array("i", [named.fileno(), one.fileno(), other.fileno()])
one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
lock = os.open("/usr/bin/env", os.O_RDONLY)
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
held("leaving")
