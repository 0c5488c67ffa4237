"""Directories in directories, far beyond what a path can say."""

import os

os.chdir("out")
with open("file", "w") as file:
    file.write("mine")
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
with open("bottom", "w") as file:
    file.write("too deep")
print("held deep")
