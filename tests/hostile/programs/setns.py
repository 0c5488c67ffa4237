"""Enters namespaces that it finds."""

import os

from attack import call, escaped, forbidden, held

for name in sorted(os.listdir("/proc/self/ns")):
    try:
        descriptor = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
    except OSError:
        held(f"setns {name}")
        continue
    result = call("setns", descriptor, 0)
    held(f"setns {name}") if result in (-1, -38) else escaped(f"setns {name}", result)
forbidden("setns", os.pidfd_open(1), 0x10000000)
