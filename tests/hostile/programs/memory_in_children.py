"""Takes memory a little in each of many processes."""

import os
import time

for _ in range(12):
    if os.fork() == 0:
        kept = bytearray(b"x") * (12 << 20)
        time.sleep(1000)
time.sleep(1000)
