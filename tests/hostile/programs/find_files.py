"""The next run: finds everything as if nobody had been there before."""

import os

from attack import escaped, held

expected = {"/tmp": set(), "/work/out": set(), "/dev/shm": set(), "/work": {"out", "program.py", "attack.py"}}
for place, names in expected.items():
    found = set(os.listdir(place))
    mode = os.stat(place).st_mode & 0o7777
    right = 0o1777 if place in ("/tmp", "/dev/shm") else 0o755
    held(place) if found == names and mode == right else escaped(place, (found, oct(mode)))
    with open(f"{place}/mine", "w") as file:
        file.write("x")
