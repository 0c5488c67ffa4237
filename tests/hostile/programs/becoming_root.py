"""Becomes somebody else."""

import ctypes
import os

from attack import LIBC, call, escaped, fails, held

fails("setuid", lambda: os.setuid(0))
fails("setgid", lambda: os.setgid(0))
fails("setresuid", lambda: os.setresuid(0, 0, 0))
fails("setresgid", lambda: os.setresgid(65534, 65534, 65534))
fails("setgroups", lambda: os.setgroups([0]))
fails("seteuid", lambda: os.seteuid(65534))
header, data = (
    (ctypes.c_uint32 * 2)(0x20080522, 0),
    (ctypes.c_uint32 * 6)(0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0),
)
held("capset") if call("capset", header, data) < 0 else escaped("capset")
ambient = [number for number in range(41) if LIBC.prctl(47, 2, number, 0, 0) == 0]
held("ambient") if not ambient else escaped("ambient", ambient)
held("no new privileges") if LIBC.prctl(39, 0, 0, 0, 0) == 1 else escaped("no new privileges")
