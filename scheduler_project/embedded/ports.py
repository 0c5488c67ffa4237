"""Loopback ports for engines that nobody outside the stack needs to know.

They lie below the range that the kernel hands to outgoing connections, which would otherwise take one now and
then between two starts.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
FIRST_PORT = 12000
LAST_PORT = 21999
# Stacks that start at the same moment each look in a place of their own first: a port is chosen before it is used.
SLICE = 20
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
    everywhere = range(FIRST_PORT, LAST_PORT + 1)
    own = everywhere[os.getpid() * SLICE % len(everywhere) :][:SLICE]
    for port in dict.fromkeys((*own, *_chooser.sample(everywhere, len(everywhere)))):
        if is_free(port) and is_free(port + PAIR_OFFSET):
            yield port
