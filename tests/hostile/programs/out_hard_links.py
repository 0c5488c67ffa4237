"""Hard links: to the program, to each other, and to what is not its own."""

import os

with open("out/one", "w") as file:
    file.write("x")
os.link("out/one", "out/two")
os.link("/work/program.py", "out/program")
for source in ("/usr/bin/env", "/etc/passwd", "/proc/self/environ", "/proc/1/exe"):
    try:
        os.link(source, "out/stolen", follow_symlinks=True)
        print("ESCAPED link to", source)
        os.remove("out/stolen")
    except OSError:
        print("held link to", source)
with open("out/file", "w") as file:
    file.write("mine")
