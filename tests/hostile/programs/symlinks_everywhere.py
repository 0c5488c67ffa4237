"""Replaces its directories by links while it runs: the worker must not follow them."""

import os
import shutil

shutil.rmtree("/work/out")
os.symlink("/", "/work/out")
for name in os.listdir("/work"):
    if name != "out":
        os.remove(f"/work/{name}")
os.symlink("/etc/passwd", "/work/program.py")
print("held links")
