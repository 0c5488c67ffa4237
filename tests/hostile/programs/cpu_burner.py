"""Burns on as many cores as there are, and more."""

import os
import time

for _ in range(3):
    os.fork()
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    pass
