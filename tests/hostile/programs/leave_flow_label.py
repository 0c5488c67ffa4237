"""Leaves a label of flows, which stays for a while after its socket, and for which no packet is sent."""

import contextlib
import socket
import struct

from attack import held

IPV6_FLOWLABEL_MGR, CREATE = 32, 1
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as labelled:
    address = socket.inet_pton(socket.AF_INET6, "::1")
    # shared with nobody, to linger for as long as it may
    request = struct.pack("=16s4sBBHHHI", address, bytes((0, 1, 0x23, 0x45)), 0, 1, CREATE, 60, 60, 0)
    with contextlib.suppress(OSError):
        labelled.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, request)
held("leaving")
