"""Opens until it is refused."""

import os
import resource

from attack import KNOWN, escaped, fails, held

count = 4
try:
    while count < 100_000:
        os.dup(0)
        count += 1
except OSError:
    pass
os.closerange(10, count + 10)
held("descriptors") if count <= KNOWN["descriptors"] + 1 else escaped("descriptors", count)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def raise_limit():
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError as error:
        raise OSError(str(error)) from error


fails("raising the limit", raise_limit)
