"""Many names that must be refused, each of which could be reported at length, and many directories to walk."""

import os

directory = os.open("out", os.O_RDONLY)
for number in range(5_000):
    os.close(os.open(f"\n{number:06}" + "\x1b" * 200, os.O_CREAT | os.O_WRONLY, dir_fd=directory))
for number in range(5_000):
    os.mkdir(f"d{number:06}", dir_fd=directory)
with open("out/file", "w") as file:
    file.write("mine")
print("held many bad")
