"""Leaves files wherever it can."""

import os

for place in ("/tmp", "/work", "/work/out", "/dev/shm", "/var/tmp", "/run", "/dev/mqueue", "/"):
    try:
        os.makedirs(f"{place}/left-behind/deep", exist_ok=True)
        with open(f"{place}/left-behind/deep/file", "w") as file:
            file.write("left")
        os.chmod(f"{place}/left-behind/deep", 0)
        os.chmod(f"{place}/left-behind", 0)
    except OSError:
        continue
os.chmod("/tmp", 0)
os.chmod("/work", 0)
print("held leaving")
