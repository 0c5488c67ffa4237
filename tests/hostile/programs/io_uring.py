"""A second way to make calls, past any filter."""

import ctypes

from attack import forbidden

parameters = ctypes.create_string_buffer(256)
forbidden("io_uring_setup", 4, parameters)
forbidden("io_uring_register", -1, 22, parameters, 1)
