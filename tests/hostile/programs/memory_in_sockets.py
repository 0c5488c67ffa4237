"""Keeps memory in the kernel: sockets that nobody reads from."""

import socket
import time

from attack import KNOWN

block = b"x" * 65536
kept = []
total = 0
try:
    while total < 3 * (KNOWN["memory"] + KNOWN["disk"]):
        ends = socket.socketpair()
        kept.append(ends)
        ends[0].setblocking(False)
        try:
            while True:
                total += ends[0].send(block)
        except BlockingIOError:
            pass
except OSError:
    print("held descriptors", flush=True)
else:
    print("ESCAPED memory in sockets", total, flush=True)
    time.sleep(1000)
