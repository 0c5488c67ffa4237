"""Files that exist in memory only."""

import fcntl
import os


def memory_file(content: bytes) -> int:
    """Return a descriptor, at offset 0, of an in-memory file."""
    descriptor = os.memfd_create("punctual", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def sealed_copy(source: int) -> int:
    """Return a descriptor, at offset 0, of an immutable in-memory copy.

    For files passed to a program: through /proc/self/fd it could reopen the host's file for writing, if it owns it.
    """
    copy = os.memfd_create("punctual", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        size, sent = os.fstat(source).st_size, 0
        while sent < size:
            step = os.sendfile(copy, source, sent, size - sent)
            if not step:
                break  # the file was truncated meanwhile
            sent += step
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
        return os.open(f"/proc/self/fd/{copy}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(copy)
