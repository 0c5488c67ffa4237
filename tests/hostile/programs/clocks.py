"""Sets the clock, for everybody: to what it is now."""

import ctypes
import time

from attack import forbidden

now = (ctypes.c_long * 2)(int(time.time()), 0)
forbidden("clock_settime", 0, now)
forbidden("settimeofday", now, 0)
timex = (ctypes.c_long * 64)()
timex[0] = 0x2000  # ADJ_NANO: changes nothing but a unit
forbidden("clock_adjtime", 0, timex)
