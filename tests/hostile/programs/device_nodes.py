"""Makes device nodes, and uses those that there are."""

import os
import stat

from attack import escaped, fails, held

for name, kind, device in (
    ("memory", stat.S_IFCHR, (1, 1)),
    ("disk", stat.S_IFBLK, (254, 0)),
    ("null", stat.S_IFCHR, (1, 3)),
    ("kvm", stat.S_IFCHR, (10, 232)),
):
    for place in ("/work", "/tmp", "/dev/shm", "/dev"):
        fails(f"{name} in {place}", lambda k=kind, d=device, p=place: os.mknod(f"{p}/node", k | 0o666, os.makedev(*d)))
allowed = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
nodes = set()
for directory, _, names in os.walk("/dev"):
    for name in names:
        mode = os.lstat(os.path.join(directory, name)).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            nodes.add(name)
held("devices") if nodes <= allowed else escaped("devices", nodes - allowed)
