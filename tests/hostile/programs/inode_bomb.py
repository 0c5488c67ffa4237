"""Makes files that are empty, so that no quota of bytes counts them."""

import os
import time

from attack import KNOWN, escaped, held

os.mkdir("/tmp/many")
directory = os.open("/tmp/many", os.O_RDONLY)
number = 0
deadline = time.monotonic() + KNOWN["seconds"]
try:
    while number < KNOWN["inodes"] and time.monotonic() < deadline:
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=directory))
        number += 1
except OSError:
    pass
if number < KNOWN["inodes"]:
    held("inodes")
else:
    escaped("inodes", number)
