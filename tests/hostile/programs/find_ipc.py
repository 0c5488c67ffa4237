"""The next run: nothing of it is there, and all of it can be made anew."""

import ctypes

from attack import LIBC, escaped, held

KEY = 0x70756E63
for name in ("shm", "sem", "msg"):
    with open(f"/proc/sysvipc/{name}") as file:
        lines = file.read().splitlines()[1:]
    held(name) if not lines else escaped(name, lines)
found = [LIBC.shmget(KEY, ctypes.c_size_t(0), 0), LIBC.semget(KEY, 0, 0), LIBC.msgget(KEY, 0)]
held("keys") if found == [-1, -1, -1] else escaped("keys", found)
try:
    queue = ctypes.CDLL("librt.so.1", use_errno=True).mq_open(b"/left", 0)
except (OSError, AttributeError):
    queue = -1
held("queue") if queue < 0 else escaped("queue")
