"""One watcher, while another run has taken all it could get."""

import ctypes

from attack import LIBC, escaped, held

held("a watcher is left") if LIBC.inotify_init1(0) >= 0 else escaped("no watcher is left", ctypes.get_errno())
