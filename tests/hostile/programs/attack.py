"""What the hostile programs share: raw system calls by name, and verdicts.

A program prints `held <what>` for each thing that it could not do and `ESCAPED <what>` for each that it could.
"""

import ctypes
import errno
import json
import os
import platform
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"

# name: (x86-64, the numbers that all newer machines share)
NUMBERS = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "finit_module": (313, 273),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setattr": (314, 274),
    "sched_setscheduler": (144, 119),
    "setdomainname": (171, 162),
    "setgroups": (116, 159),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setresgid": (119, 149),
    "setresuid": (117, 147),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}


def held(what):
    print("held", what, flush=True)


def escaped(what, detail=""):
    print("ESCAPED", what, detail, flush=True)


def call(name, *arguments):
    """The result of a raw system call, or its error as a negative number."""
    number = NUMBERS[name][0 if X86 else 1]
    if number is None:
        return -errno.ENOSYS
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *wide)
    return -ctypes.get_errno() if result == -1 else result


def forbidden(name, *arguments):
    """Not merely failed: refused before the kernel looked at the arguments, which are good ones."""
    result = call(name, *arguments)
    if result in (-errno.EPERM, -errno.ENOSYS):
        held(name)
    else:
        escaped(name, result if result >= 0 else errno.errorcode[-result])


def fails(what, act, *errors):
    """Held if `act` raises OSError, and one of these where any are named."""
    try:
        answer = act()
    except OSError as error:
        if errors and error.errno not in errors:
            escaped(what, f"but {error}")
        else:
            held(what)
    else:
        escaped(what, answer)


def in_child(act):
    """Run it in a child that ends with what it returns; the status that wait tells."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = int(act() or 0)
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


# what the test tells it: addresses of decoys, the worker's pid, limits
KNOWN = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
