"""Takes pid 1 of the sandbox over, or kills it and goes on."""

import os
import signal
import time

from attack import escaped, fails, held

fails("its memory", lambda: os.open("/proc/1/mem", os.O_RDWR))
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1):
    os.kill(1, number)
with open("/proc/1/status") as file:
    state = next(line.split()[1] for line in file if line.startswith("State"))
held("signals") if state in "SRDI" else escaped("signals", state)
open_there = []
for name in os.listdir("/proc/1/fd"):
    try:
        open_there.append((int(name), os.readlink(f"/proc/1/fd/{name}")))
    except OSError:
        continue
strange = [(number, target) for number, target in open_there if number > 2 and target != "anon_inode:[eventfd]"]
held("its descriptors") if not strange else escaped("its descriptors", strange)
held("its root") if os.path.samefile("/proc/1/root", "/") else escaped("its root")
time.sleep(0)
