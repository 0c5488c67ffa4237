"""The newer mount calls, which do the same by descriptor."""

import ctypes

from attack import forbidden

forbidden("fsopen", b"tmpfs", 0)
forbidden("open_tree", -100, b"/", 1)  # OPEN_TREE_CLONE
forbidden("open_tree", -100, b"/", 0)
forbidden("move_mount", -100, b"/usr", -100, b"/tmp", 0)
forbidden("fspick", -100, b"/", 0)
forbidden("fsmount", 0, 0, 0)
attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
forbidden("mount_setattr", -100, b"/", 0, attributes, 32)
