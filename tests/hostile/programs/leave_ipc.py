"""Leaves System V objects and a message queue."""

import ctypes

from attack import LIBC, held

KEY = 0x70756E63
LIBC.shmget(KEY, ctypes.c_size_t(1 << 20), 0o1666)
LIBC.semget(KEY, 1, 0o1666)
LIBC.msgget(KEY, 0o1666)
LIBC.syscall(ctypes.c_long(240 if ctypes.sizeof(ctypes.c_long) == 8 else 180), b"left", 0o102, 0o666, None)
held("leaving")
