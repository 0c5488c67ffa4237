"""Leaves its cgroup, raises its limits, or has the host run a program when a cgroup empties (CVE-2022-0492)."""

import glob
import os

from attack import call, escaped, fails, held

fails("/sys/fs/cgroup", lambda: os.listdir("/sys/fs/cgroup"))
for controller in (b"cgroup", b"cgroup2"):
    result = call("mount", b"none", b"/tmp", controller, 0, b"memory" if controller == b"cgroup" else 0)
    held(controller.decode()) if result < 0 else escaped(controller.decode())
agents = glob.glob("/**/release_agent", recursive=False) + glob.glob("/tmp/**/release_agent", recursive=True)
held("release_agent") if not agents else escaped("release_agent", agents)
with open("/proc/self/cgroup") as file:
    own = file.read()
# with a cgroup namespace of its own it sees itself at the root, or outside it, but no name of the worker's
held("names") if "punctual" not in own else escaped("names", own)
