"""Signals whomever it can name: everybody, groups, the worker, the launcher."""

import os
import signal

from attack import KNOWN, escaped, fails, held

signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL):
    try:
        os.kill(-1, number)  # everybody but itself and pid 1
    except ProcessLookupError:
        continue
for pid in (KNOWN["worker"], KNOWN["launcher"], KNOWN["victim"]):
    fails(f"signalling {pid == KNOWN['worker']}", lambda pid=int(pid): os.kill(pid, signal.SIGKILL))
for pid in range(2, 3000):
    if pid != os.getpid():
        try:
            os.kill(pid, signal.SIGKILL)
            escaped("a process", pid)
        except OSError:
            continue
held("everybody")
