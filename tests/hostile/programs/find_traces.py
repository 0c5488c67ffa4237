"""The next run: finds none of it."""

import fcntl
import os
import socket

from attack import escaped, held

for name in ("ip6_flowlabel", "unix", "tcp", "udp", "udp6", "raw", "packet", "igmp6"):
    try:
        with open(f"/proc/net/{name}") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        lines = []
    if name == "igmp6":
        lines = [line for line in lines if " lo " not in line]
    held(name) if not lines else escaped(name, lines)
with socket.socket(socket.AF_UNIX) as mine:
    try:
        mine.bind("\0left-in-a-circle")
        held("the name")
    except OSError as error:
        escaped("the name", error)
try:
    fcntl.flock(os.open("/usr/bin/env", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    held("the lock")
except OSError as error:
    escaped("the lock", error)
