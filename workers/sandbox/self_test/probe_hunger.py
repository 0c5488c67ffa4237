"""Probe that allocates memory outside of processes until it is killed; prints `held` if that is refused.

Run inside a sandbox, as `probe_program.py`.
"""

from __future__ import annotations

import ctypes
import os
import time

MEBIBYTE = 1024 * 1024
MEBIBYTES = 60  # twice the limit
IPC_PRIVATE, IPC_CREATE = 0, 0o1600
KEEP_SECONDS = 1.0

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


def nameless_files() -> bool:
    try:
        for _ in range(MEBIBYTES):
            os.write(os.memfd_create("hunger"), bytes(MEBIBYTE))
    except OSError:
        return False
    return True


def detached_segments() -> bool:
    for _ in range(MEBIBYTES):
        segment = libc.shmget(IPC_PRIVATE, MEBIBYTE, IPC_CREATE)
        if segment < 0:
            return False
        address = libc.shmat(segment, None, 0)
        ctypes.memset(address, 1, MEBIBYTE)
        libc.shmdt(ctypes.c_void_p(address))
    return True


def main() -> None:
    taken = [take.__name__ for take in (nameless_files, detached_segments) if take()]
    if taken:
        time.sleep(KEEP_SECONDS)
    print(f"it kept {' and '.join(taken)}" if taken else "held")


if __name__ == "__main__":
    main()
