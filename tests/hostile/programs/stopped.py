"""Stops itself and its children, so that nothing of it reacts to anything."""

import os
import signal

for _ in range(4):
    if os.fork() == 0:
        os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)
