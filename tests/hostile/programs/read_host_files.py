"""Tries every way to the host's files that has a name."""

import os

from attack import KNOWN, escaped, fails, held

secret = KNOWN["secret_file"]
ways = [
    secret,
    "/proc/1/root" + secret,
    "/proc/self/root/../.." + secret,
    "/work/../.." + secret,
    "/proc/1/cwd/.." + secret,
]
for number, way in enumerate(ways):
    fails(f"way {number}", lambda way=way: open(way).read())
places = [
    "/etc/shadow",
    "/etc/gshadow",
    "/root",
    "/home",
    "/var/run/docker.sock",
    "/run",
    "/sys",
    "/boot",
    "/etc/ssl/private",
]
there = [place for place in places if os.path.exists(place) or os.path.exists("/proc/1/root" + place)]
held("places") if not there else escaped("places", there)
for directory in ("/", "/etc", "/usr", "/usr/bin", "/dev", "/proc", "/proc/sys/kernel", "/lib", "/work/.."):
    fails(f"writing {directory}", lambda directory=directory: os.mkdir(f"{directory}/made-by-a-job"))
mode = os.stat("/usr/bin/env").st_mode & 0o7777
fails("changing a system file", lambda: os.chmod("/usr/bin/env", mode))
fails("opening a system file", lambda: os.open("/usr/bin/env", os.O_WRONLY | os.O_APPEND))
fails("touching a system file", lambda: os.utime("/usr/bin/env"))
