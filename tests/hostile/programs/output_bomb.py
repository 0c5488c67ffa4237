"""Writes on both streams as fast as it can, for ever."""

import os

block = b"x" * 65536
if os.fork():
    while True:
        os.write(1, block)
else:
    while True:
        os.write(2, block)
