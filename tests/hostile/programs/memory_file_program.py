"""Executes a program that has no name: allowed where its memory is counted, and as confined as any other."""

import os
import sys

from attack import escaped, held, in_child

try:
    descriptor = os.memfd_create("program", 0)
except OSError:
    held("there are no such files")
    sys.exit()
with open("/usr/bin/id", "rb") as file:
    os.write(descriptor, file.read())
reading, writing = os.pipe()


def execute():
    os.dup2(writing, 1)
    os.execve(f"/proc/self/fd/{descriptor}", ["id", "-u"], {})


status = in_child(execute)
os.close(writing)
answer = os.read(reading, 100)
held("the program runs") if status == 0 and answer == b"1000\n" else escaped("the program", (status, answer))
