"""Keeps memory in attributes of files, which no quota of bytes counts."""

import os
import time

from attack import KNOWN, held

total = 0
most = 3 * (KNOWN["memory"] + KNOWN["disk"])
try:
    for number in range(100_000):
        with open(f"/tmp/{number}", "w") as file:
            for name in range(16):
                os.setxattr(file.fileno(), f"user.{name}", b"x" * 60_000)
                total += 60_000
        if total > most:
            break
except OSError:
    pass
if total <= most:
    held("attributes")
else:
    time.sleep(1000)  # what it has got so fast, it must not keep
