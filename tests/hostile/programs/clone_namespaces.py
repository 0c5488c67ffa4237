"""The same by clone, alone and hidden among other flags."""

import os

from attack import call, escaped, held

for flag in (0x10000000, 0x10000000 | 0x20000000, 0x20000, 0x40000000, 0x2000000, 0x4000000, 0x8000000):
    pid = call("clone", flag | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    held(f"clone {flag:#x}") if pid < 0 else escaped(f"clone {flag:#x}")
