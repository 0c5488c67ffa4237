"""Walks its descriptors: it must have four, and none of them leads anywhere but to its own pipes."""

import fcntl
import os
import stat

from attack import escaped, held

here = []
for number in range(4096):
    try:
        here.append((number, os.fstat(number)))
    except OSError:
        continue
numbers = [number for number, _ in here]
held("walk") if numbers == [0, 1, 2, 3] else escaped("walk", numbers)
listed = sorted(int(name) for name in os.listdir("/proc/self/fd"))
held("listing") if listed[:4] == [0, 1, 2, 3] and len(listed) == 5 else escaped("listing", listed)
null = os.stat("/dev/null")
held("stdin is empty") if os.read(0, 1) == b"" and here[0][1].st_rdev == null.st_rdev else escaped("stdin")
held("stdin cannot be written") if fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY else escaped(
    "stdin's mode"
)
held("pipes") if all(stat.S_ISFIFO(status.st_mode) for _, status in here[1:]) else escaped("pipes")
# the far ends are the worker's: opening them anew for reading would let it read what it wrote, and no more
try:
    again = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    held("its own pipe") if stat.S_ISFIFO(os.fstat(again).st_mode) else escaped("its own pipe")
except OSError:
    held("its own pipe")
