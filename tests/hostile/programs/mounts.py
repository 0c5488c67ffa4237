"""The mount calls that there have always been."""

from attack import forbidden

forbidden("mount", b"none", b"/tmp", b"tmpfs", 0, 0)
forbidden("mount", b"/usr", b"/tmp", 0, 4096, 0)  # MS_BIND
forbidden("mount", b"none", b"/", 0, 32 | 4096, 0)  # MS_REMOUNT | MS_BIND: without MS_RDONLY
forbidden("mount", b"proc", b"/tmp", b"proc", 0, 0)
forbidden("mount", b"cgroup", b"/tmp", b"cgroup2", 0, 0)
forbidden("umount2", b"/tmp", 2)
forbidden("pivot_root", b"/tmp", b"/tmp")
forbidden("chroot", b"/tmp")
