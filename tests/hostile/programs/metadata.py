"""Asks for the cloud's metadata, the local network, the world: there must be no way out, not just no answer."""

import errno
import socket

from attack import escaped, fails, held

for host in ("169.254.169.254", "10.0.0.1", "172.17.0.1", "192.168.0.1", "192.0.2.1", "100.64.0.1", "224.0.0.1"):
    fails(f"tcp {host}", lambda host=host: socket.create_connection((host, 80), 2), errno.ENETUNREACH)
for host in ("fd00:ec2::254", "fe80::1%lo", "2001:db8::1"):
    fails(f"tcp {host}", lambda host=host: socket.create_connection((host, 80), 2))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for host in ("169.254.169.254", "255.255.255.255"):
        fails(f"udp {host}", lambda host=host: datagrams.sendto(b"x", (host, 53)), errno.ENETUNREACH)
interfaces = [name for _, name in socket.if_nameindex()]
held("interfaces") if interfaces == ["lo"] else escaped("interfaces", interfaces)
fails("a name", lambda: socket.getaddrinfo("metadata.google.internal", 80))
