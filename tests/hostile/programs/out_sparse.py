"""Files that claim to be large."""

import os
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("out/terabyte", "wb") as file:
    try:
        os.truncate(file.fileno(), 1 << 40)
        print("ESCAPED a terabyte")
    except OSError:
        print("held a terabyte")
for number in range(40):
    with open(f"out/sparse-{number:02}", "wb") as file:
        os.truncate(file.fileno(), 1 << 20)
try:
    descriptor = os.open("out/allocated", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(descriptor, 0, 1 << 30)
    print("ESCAPED a gigabyte")
except OSError:
    print("held a gigabyte")
