"""Raises its limits, by name and for others."""

import resource

from attack import escaped, fails, held

LIMITS = (
    "RLIMIT_NOFILE",
    "RLIMIT_FSIZE",
    "RLIMIT_CORE",
    "RLIMIT_MEMLOCK",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_NICE",
    "RLIMIT_RTPRIO",
)


def raise_hard(kind):
    _, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY:
        return "it has no limit"
    try:
        resource.setrlimit(kind, (hard, resource.RLIM_INFINITY))
        return resource.getrlimit(kind)
    except ValueError as error:  # what Python makes of EPERM here
        raise OSError(str(error)) from error


for name in LIMITS:
    kind = getattr(resource, name)
    fails(name, lambda kind=kind: raise_hard(kind))
held("no core files") if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0) else escaped("core files")
