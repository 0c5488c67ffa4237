"""Takes a descriptor out of another process."""

import os

from attack import call, escaped, forbidden, held

forbidden("pidfd_getfd", os.pidfd_open(os.getpid()), 1, 0)
first = os.pidfd_open(1)
taken = [number for number in range(20) if call("pidfd_getfd", first, number, 0) >= 0]
held("descriptors of pid 1") if not taken else escaped("descriptors of pid 1", taken)
