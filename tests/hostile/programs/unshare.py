"""Namespaces of its own, in which it would be root: the way to most kernel bugs."""

from attack import forbidden

for flag in (0x10000000, 0x10000000 | 0x20000, 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000, 0x2000000, 0x80):
    forbidden("unshare", flag)  # user, user with mount, mount, net, pid, uts, ipc, cgroup, time
