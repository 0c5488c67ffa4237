"""Counts how many processes it may have at once."""

import os
import time

from attack import KNOWN, escaped, held

count = 1
try:
    while count < 5000:
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
        count += 1
except OSError:
    pass
if count <= KNOWN["processes"]:
    held("processes")
else:
    escaped("processes", count)
