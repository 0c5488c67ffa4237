"""Loopback ports for engines that nobody outside the stack needs to know.

They lie below the range that the kernel hands to outgoing connections, which would otherwise take one now and
then between two starts.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
FIRST_PORT = 12000
LAST_PORT = 21999
# SeaweedFS's own parts assume that the gRPC port of a part is its HTTP port plus this.
PAIR_OFFSET = 10000

_chooser = random.SystemRandom()


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # A connection of a stopped engine in TIME_WAIT does not keep the engine from listening again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports() -> Iterator[int]:
    """Yields different ports for as long as the caller asks; each is free, and so is its pair."""
    for port in _chooser.sample(range(FIRST_PORT, LAST_PORT + 1), LAST_PORT + 1 - FIRST_PORT):
        if is_free(port) and is_free(port + PAIR_OFFSET):
            yield port
