"""Sockets of the kinds that programs need not have: to the hypervisor, to the wire, to the kernel."""

import errno
import socket

from attack import escaped, fails, held

REFUSED = (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.ENOSYS, errno.EPROTONOSUPPORT)
kinds = {
    "vsock": (40, socket.SOCK_STREAM, 0),
    "packet": (17, socket.SOCK_RAW, 0),
    "alg": (38, socket.SOCK_SEQPACKET, 0),
    "raw": (socket.AF_INET, socket.SOCK_RAW, 1),
    "raw6": (socket.AF_INET6, socket.SOCK_RAW, 58),
    "bluetooth": (31, socket.SOCK_RAW, 1),
    "can": (29, socket.SOCK_RAW, 1),
    "rds": (21, socket.SOCK_SEQPACKET, 0),
    "tipc": (30, socket.SOCK_STREAM, 0),
    "key": (15, socket.SOCK_RAW, 2),
    "xdp": (44, socket.SOCK_RAW, 0),
    "netlink audit": (16, socket.SOCK_RAW, 9),
    "netlink netfilter": (16, socket.SOCK_RAW, 12),
    "netlink generic": (16, socket.SOCK_RAW, 16),
    "netlink uevent": (16, socket.SOCK_DGRAM, 15),
}
for name, (family, kind, protocol) in kinds.items():
    fails(name, lambda a=family, b=kind, c=protocol: socket.socket(a, b, c), *REFUSED)
try:
    socket.socket(socket.AF_UNIX).close()
    socket.create_server(("127.0.0.1", 0)).close()
    socket.socket(16, socket.SOCK_RAW, 0).close()
    held("ordinary sockets work")
except OSError as error:
    escaped("ordinary sockets do not work", error)
