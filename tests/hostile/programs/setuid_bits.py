"""Makes setuid files, by every call that takes a mode: on the host they would belong to the worker."""

import os

from attack import NUMBERS, call, escaped, held

with open("/work/file", "w") as file:
    file.write("#!/bin/sh\n")
descriptor = os.open("/work/file", os.O_RDWR)
ways = {
    "chmod": lambda: os.chmod("/work/file", 0o4755),
    "fchmod": lambda: os.fchmod(descriptor, 0o2755),
    "fchmodat": lambda: os.chmod("file", 0o6755, dir_fd=os.open("/work", os.O_RDONLY)),
    "open": lambda: os.open("/work/opened", os.O_CREAT | os.O_WRONLY, 0o4755),
    "openat": lambda: os.open("openedat", os.O_CREAT | os.O_WRONLY, 0o2755, dir_fd=os.open("/work", os.O_RDONLY)),
    "O_TMPFILE": lambda: os.open("/work", os.O_TMPFILE | os.O_RDWR, 0o4755),
    "mkdir": lambda: os.mkdir("/work/directory", 0o2755),
    "mknod": lambda: os.mknod("/work/node", 0o104755),
    "creat": lambda: os.open("/work/created", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o6777),
}
assert "fchmodat2" in NUMBERS
ways["fchmodat2"] = lambda: call("fchmodat2", -100, b"/work/file", 0o4755, 0)
os.umask(0)
for name, way in ways.items():
    try:
        result = way()
    except OSError:
        result = -1
    modes = [os.fstat(result).st_mode] if isinstance(result, int) and result > 2 else []
    for entry in os.scandir("/work"):
        modes.append(entry.stat(follow_symlinks=False).st_mode)
    held(name) if not any(mode & 0o6000 for mode in modes) else escaped(name)
    os.fchmod(descriptor, 0o755)
    for entry in ("opened", "openedat", "node", "created"):
        if os.path.lexists(f"/work/{entry}"):
            os.remove(f"/work/{entry}")
    if os.path.isdir("/work/directory"):
        os.rmdir("/work/directory")
