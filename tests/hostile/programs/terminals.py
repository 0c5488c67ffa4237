"""Types on a terminal of the host, or takes it over."""

import fcntl
import os
import struct
import termios

from attack import LIBC, escaped, fails, held

fails("the worker's terminal", lambda: os.open("/dev/tty", os.O_RDWR))
fails("the console", lambda: os.open("/dev/console", os.O_RDWR))
held("no terminals of others") if os.listdir("/dev/pts") == ["ptmx"] else escaped("terminals", os.listdir("/dev/pts"))
for descriptor in (0, 1, 2):
    fails(f"TIOCSTI on {descriptor}", lambda d=descriptor: fcntl.ioctl(d, termios.TIOCSTI, b"x"))
try:
    master, slave = os.openpty()
except OSError:
    held("TIOCSTI on its own")
    held("TIOCSTI with high bits")
    held("TIOCLINUX")
else:
    os.setsid() if os.getsid(0) != os.getpid() else None
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    fails("TIOCSTI on its own", lambda: fcntl.ioctl(slave, termios.TIOCSTI, b"x"))
    # the kernel looks at 32 bits only; a filter that compares 64 lets this through
    import ctypes

    character = ctypes.create_string_buffer(b"x")
    result = LIBC.syscall(
        ctypes.c_long(16 if os.uname().machine == "x86_64" else 29),
        ctypes.c_long(slave),
        ctypes.c_ulong(termios.TIOCSTI | 1 << 32),
        character,
    )
    held("TIOCSTI with high bits") if result < 0 else escaped("TIOCSTI with high bits")
    fails("TIOCLINUX", lambda: fcntl.ioctl(slave, 0x541C, struct.pack("b", 3)))
