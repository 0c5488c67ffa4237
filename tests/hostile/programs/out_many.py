"""More files than anybody wants."""

import os

directory = os.open("out", os.O_RDONLY)
for number in range(100_000):
    os.close(os.open(f"{number:06}", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
print("held many")
