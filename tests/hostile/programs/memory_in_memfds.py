"""Keeps memory in files without a name, which no process has mapped."""

import os
import time

from attack import KNOWN

block = b"x" * (1 << 20)
kept = []
total = 0
try:
    while total < 3 * (KNOWN["memory"] + KNOWN["disk"]):
        kept.append(os.memfd_create("kept"))
        total += os.write(kept[-1], block)
except OSError as error:
    print("held", error, flush=True)
else:
    print("ESCAPED memory in memfds", total, flush=True)
    time.sleep(1000)
