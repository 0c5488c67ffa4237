"""The machine's ports, by privilege level."""

from attack import forbidden

forbidden("iopl", 3)
forbidden("ioperm", 0x80, 1, 1)
