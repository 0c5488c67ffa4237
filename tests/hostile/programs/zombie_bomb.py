"""Children that have ended and are never waited for."""

import os
import signal

from attack import KNOWN, escaped, held

signal.signal(signal.SIGCHLD, signal.SIG_DFL)
count = 1
try:
    while count < 5000:
        if os.fork() == 0:
            os._exit(0)
        count += 1
except OSError:
    pass
if count <= KNOWN["processes"]:
    held("zombies")
else:
    escaped("zombies", count)
