"""Works in a directory that is gone, and looks for what is above it."""

import os

from attack import escaped, fails, held

os.makedirs("/tmp/a/b")
os.chdir("/tmp/a/b")
handle = os.open(".", os.O_RDONLY)
os.rmdir("/tmp/a/b")
os.rmdir("/tmp/a")
fails("writing there", lambda: os.open("file", os.O_CREAT | os.O_WRONLY))
fails("its name", os.getcwd)
os.chdir("/")
os.fchdir(handle)
for _ in range(50):
    try:
        os.chdir("..")
    except OSError:
        break
inside = os.path.samefile(".", "/") or not os.path.exists("etc/shadow")
held("climbing") if inside else escaped("climbing")
