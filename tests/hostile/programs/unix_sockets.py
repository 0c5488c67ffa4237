"""Connects to the host's sockets: abstract ones, and those with a path."""

import socket

from attack import KNOWN, escaped, fails, held


def connect(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as connection:
        connection.connect(address)


fails("abstract", lambda: connect("\0" + KNOWN["abstract"]))
fails("path", lambda: connect(KNOWN["socket"]))
fails("path through pid 1", lambda: connect("/proc/1/root" + KNOWN["socket"]))
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"):
    fails(path, lambda path=path: connect(path))
with open("/proc/net/unix") as file:
    theirs = [line for line in file.read().splitlines()[1:] if "@" in line]
held("listing") if not theirs else escaped("listing", theirs)
