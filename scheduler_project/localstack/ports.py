"""Internal loopback ports of the engines.

They are below the ephemeral range, where an outgoing connection could take one between two starts.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

LOOPBACK = "127.0.0.1"
FIRST_PORT = 12000
LAST_PORT = 21999
# Stacks that start at the same moment try different ranges first, because a port is chosen before it is bound.
PORTS_PER_STACK = 20
# SeaweedFS assumes that the gRPC port of a component is its HTTP port plus this.
GRPC_PORT_OFFSET = 10000

_random = random.SystemRandom()


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # A port in TIME_WAIT counts as free: the engine can bind it again.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def iter_free_ports() -> Iterator[int]:
    """Yield distinct ports that are free together with their gRPC ports."""
    candidates = range(FIRST_PORT, LAST_PORT + 1)
    own = candidates[os.getpid() * PORTS_PER_STACK % len(candidates) :][:PORTS_PER_STACK]
    for port in dict.fromkeys((*own, *_random.sample(candidates, len(candidates)))):
        if is_free(port) and is_free(port + GRPC_PORT_OFFSET):
            yield port
