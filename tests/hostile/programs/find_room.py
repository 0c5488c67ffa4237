"""The next run: has all of its limits for itself, whatever its predecessor did to them."""

import os
import time

from attack import KNOWN, escaped, held

children = []
try:
    while len(children) < KNOWN["processes"] - 1:
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        children.append(pid)
    held("processes")
except OSError as error:
    escaped("processes", (len(children), error))
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
kept = bytearray(b"x") * (KNOWN["memory"] // 2)
held("memory")
with open("/work/fill", "wb") as file:
    file.write(b"x" * (KNOWN["disk"] // 2))
held("disk")
started = time.process_time(), time.monotonic()
while time.process_time() - started[0] < 0.05:
    pass
