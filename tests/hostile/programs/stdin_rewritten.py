"""Opens its standard input anew, for writing: on the host it is a file of the worker's."""

import os

from attack import escaped, fails, held

held("reading") if os.read(0, 100) == b"input" else escaped("reading")
held("its name") if "/tmp" not in os.readlink("/proc/self/fd/0") else escaped(
    "its name", os.readlink("/proc/self/fd/0")
)
for name, flags in (("writing", os.O_WRONLY), ("truncating", os.O_WRONLY | os.O_TRUNC), ("both", os.O_RDWR)):
    fails(name, lambda flags=flags: os.write(os.open("/proc/self/fd/0", flags), b"owned"))
fails("cutting", lambda: os.truncate("/proc/self/fd/0", 0))
# that this works on a copy is fine; whether it reached the host's file is judged there
for act in (lambda: os.fchmod(0, 0o777), lambda: os.utime(0, (1, 1)), lambda: os.setxattr(0, "user.owned", b"1")):
    try:
        act()
    except OSError:
        continue
