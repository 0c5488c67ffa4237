"""Takes over other processes: its own children too, for a tracer could change what a filter allowed."""

import os
import signal
import time

from attack import call, escaped, forbidden, held

forbidden("ptrace", 16, 1, 0, 0)  # PTRACE_ATTACH
child = os.fork()
if child == 0:
    time.sleep(1000)
attached = call("ptrace", 0x4206, child, 0, 0)  # PTRACE_SEIZE
held("ptrace of a child") if attached < 0 else escaped("ptrace of a child")
os.kill(child, signal.SIGKILL)
traceme = os.fork()
if traceme == 0:
    os._exit(int(call("ptrace", 0, 0, 0, 0) >= 0))
held("PTRACE_TRACEME") if os.waitpid(traceme, 0)[1] == 0 else escaped("PTRACE_TRACEME")
forbidden("kcmp", os.getpid(), os.getpid(), 0, 0, 1)
