"""Runs before everybody else."""

import ctypes
import os

from attack import call, escaped, fails, held

fails("nice", lambda: os.setpriority(os.PRIO_PROCESS, 0, -1))
for name, policy in (("FIFO", os.SCHED_FIFO), ("RR", os.SCHED_RR)):
    fails(name, lambda policy=policy: os.sched_setscheduler(0, policy, os.sched_param(1)))
deadline = (ctypes.c_uint64 * 6)(48 | 6 << 32, 0, 0, 10_000_000, 30_000_000, 30_000_000)
held("DEADLINE") if call("sched_setattr", 0, deadline, 0) < 0 else escaped("DEADLINE")
held("real-time io") if call("ioprio_set", 1, 0, 1 << 13) < 0 else escaped("real-time io")
held("locking memory") if ctypes.CDLL(None).mlockall(3) != 0 else escaped("locking memory")
fails("others' priority", lambda: os.setpriority(os.PRIO_PROCESS, 1, -5))
