"""Makes the kernel drop clients that do not read, which no timeout of the application can detect."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import suppress

logger = logging.getLogger(__name__)

# For clients that stop reading or vanish silently.
READ_TIMEOUT_SECONDS = 60
FIND_SOCKET_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.05


async def drop_stalled_clients() -> None:
    """Set the timeout once this process listens, which it does only after the application has started."""
    try:
        async with asyncio.timeout(FIND_SOCKET_TIMEOUT_SECONDS):
            while not set_user_timeout(READ_TIMEOUT_SECONDS):
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        logger.warning("No listening TCP socket found; clients that do not read are not dropped")


def set_user_timeout(seconds: float) -> int:
    """Set TCP_USER_TIMEOUT on this process's listening sockets, which connections inherit; return their number.

    The timeout runs while the client's window is full or sent data is not acknowledged.
    """
    count = 0
    for name in os.listdir("/proc/self/fd"):
        # Other threads open and close files meanwhile.
        with suppress(OSError), _dup_socket(int(name)) as copy:
            is_tcp = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM
            if is_tcp and copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
                count += 1
    return count


def _dup_socket(descriptor: int) -> socket.socket:
    """Return a duplicate of the socket; raise OSError for any other descriptor."""
    copy = os.dup(descriptor)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        # The socket object, which would close the descriptor, does not exist.
        os.close(copy)
        raise
