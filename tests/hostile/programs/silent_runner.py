"""Closes its output and goes on."""

import os
import signal

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
os.closerange(0, 3)
while True:
    signal.pause()
