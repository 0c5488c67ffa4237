"""Looks for other runs and other processes: names, arguments, environments, sockets, mounts."""

import os

from attack import KNOWN, escaped, held

pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
held("processes") if len(pids) <= 4 and max(pids) < 20 else escaped("processes", pids)
words = []
for pid in pids:
    for name in ("cmdline", "environ", "comm"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                words += file.read().split(b"\0")
        except OSError:
            continue
bad = [word for word in words if b"victim.py" in word or b"launcher_process" in word]
held("arguments") if not bad else escaped("arguments", bad)
held("the worker") if not os.path.exists(f"/proc/{KNOWN['worker']}") else escaped("the worker")
with open("/proc/self/mountinfo") as file:
    mounts = file.read()
bad = [word for word in ("victim", "punctual-worker", "/root", "/home") if word in mounts]
held("mounts") if not bad else escaped("mounts", bad)
with open("/proc/self/environ", "rb") as file:
    names = {entry.partition(b"=")[0] for entry in file.read().split(b"\0") if entry}
held("environment") if names == {b"PATH", b"PWD"} else escaped("environment", names)
