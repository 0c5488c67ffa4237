"""Connects to the host's Redis, Postgres and whatever else listens on its loopback, by every address of it."""

import socket

from attack import KNOWN, fails

for name in ("redis", "postgres", "metadata"):
    port = int(KNOWN[name])
    for host in ("127.0.0.1", "0.0.0.0", "localhost", "::1", "::ffff:127.0.0.1", "127.1.2.3"):
        fails(f"{name} at {host}", lambda host=host, port=port: socket.create_connection((host, port), 2))
