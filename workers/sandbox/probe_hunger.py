"""Takes memory that no process of a sandbox shows and keeps it until it is killed; says `held` if there is none to get.

Run inside, as `probe_program.py` is.
"""

from __future__ import annotations

import ctypes
import os
import time

MEBIBYTE = 1024 * 1024
PIECES = 60  # twice the limit
PRIVATE, NEW = 0, 0o1600
KEEP_SECONDS = 1.0

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


def nameless_files() -> bool:
    try:
        for _ in range(PIECES):
            os.write(os.memfd_create("hunger"), bytes(MEBIBYTE))
    except OSError:
        return False
    return True


def detached_segments() -> bool:
    for _ in range(PIECES):
        segment = libc.shmget(PRIVATE, MEBIBYTE, NEW)
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
