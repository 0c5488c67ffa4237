"""Reads and writes the memory of its own process as another would: the call must not exist for it at all."""

import ctypes
import os

from attack import forbidden


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


buffer = ctypes.create_string_buffer(8)
vector = Vector(ctypes.addressof(buffer), 8)
for name in ("process_vm_readv", "process_vm_writev"):
    forbidden(name, os.getpid(), ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0)
