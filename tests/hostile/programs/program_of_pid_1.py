"""Overwrites, or makes unusable, the program that built the sandbox, through pid 1 (as CVE-2019-5736 did)."""

import errno
import os
import sys

from attack import escaped, fails, held

for name in ("/proc/1/exe", "/proc/self/exe"):
    fails(f"writing {name}", lambda name=name: os.open(name, os.O_WRONLY | os.O_APPEND))
    fails(f"truncating {name}", lambda name=name: os.truncate(name, 1 << 30))
try:
    before = os.stat("/proc/1/exe")
    handle = os.open("/proc/1/exe", os.O_PATH)
    fails("writing through a handle", lambda: os.open(f"/proc/self/fd/{handle}", os.O_WRONLY))
    os.close(handle)
except OSError:
    held("writing through a handle")
# that these work on a copy in memory is fine; whether they reached the host's file is judged there
for act in (
    lambda: os.chmod("/proc/1/exe", 0o700),
    lambda: os.utime("/proc/1/exe", (1, 1)),
    lambda: os.setxattr("/proc/1/exe", "user.owned", b"1"),
):
    try:
        act()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EROFS, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOSYS):
            escaped("an odd error", error)
fails("writing the interpreter", lambda: os.open(sys.executable, os.O_WRONLY))
held("reaching the end")
