"""What only the owner of the machine may do."""

import ctypes

from attack import forbidden

empty = ctypes.create_string_buffer(256)
forbidden("init_module", empty, 1, b"")
forbidden("finit_module", 0, b"", 0)
forbidden("delete_module", b"nothing", 0)
forbidden("kexec_load", 0, 0, 0, 0)
forbidden("kexec_file_load", 0, 0, 0, b"", 0)
forbidden("reboot", 0xFEE1DEAD, 672274793, 0x89ABCDEF, 0)  # "disable Ctrl-Alt-Del", the mildest there is
forbidden("swapon", b"/work/none", 0)
forbidden("swapoff", b"/work/none")
forbidden("acct", b"/work/none")
forbidden("quotactl", 0x800007, b"/dev/none", 0, empty)
forbidden("quotactl_fd", 0, 0x800007, 0, empty)
forbidden("syslog", 3, empty, 256)
forbidden("sethostname", b"owned", 5)
forbidden("setdomainname", b"owned", 5)
forbidden("vhangup")
