"""Fills every place that it may write to."""

import errno
import os

from attack import KNOWN, escaped, held

block = b"x" * 65536
for place, limit in (("/work", KNOWN["disk"]), ("/tmp", KNOWN["disk"]), ("/dev/shm", min(KNOWN["memory"], 64 << 20))):
    written = 0
    try:
        for number in range(1000):
            with open(f"{place}/fill-{number}", "wb", buffering=0) as file:
                for _ in range(16):
                    written += file.write(block)
            if written > 2 * limit:
                break
    except OSError as error:
        full = error.errno == errno.ENOSPC
    else:
        full = False
    held(place) if full and written <= limit else escaped(place, written)
    for name in os.listdir(place):
        if name.startswith("fill-"):
            os.remove(f"{place}/{name}")
