"""Programs and counters inside the kernel."""

import ctypes

from attack import call, escaped, forbidden, held

attributes = (ctypes.c_uint32 * 32)(2, 4, 4, 1)  # an array map of one entry
forbidden("bpf", 0, attributes, 128)
event = (ctypes.c_uint32 * 32)(1, 112)  # a software event, of this process and in user mode only
event[10] = 0x60
forbidden("perf_event_open", event, 0, ctypes.c_long(-1), ctypes.c_long(-1), 0)
forbidden("userfaultfd", 1)  # UFFD_USER_MODE_ONLY, which needs no privilege
forbidden("userfaultfd", 0)
fanotify = call("fanotify_init", 0x200, 0)  # FAN_REPORT_FID, which needs no privilege
held("fanotify") if fanotify < 0 else escaped("fanotify")
forbidden("memfd_secret", 0)
forbidden("modify_ldt", 0, ctypes.create_string_buffer(16), 16)
