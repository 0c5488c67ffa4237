"""The kernel's own files: memory, messages, symbols, settings."""

import os

from attack import escaped, fails, held

for name in (
    "/dev/mem",
    "/dev/kmem",
    "/dev/port",
    "/dev/kmsg",
    "/proc/kcore",
    "/proc/kmsg",
    "/dev/sda",
    "/dev/vda",
    "/dev/kvm",
    "/dev/fuse",
    "/dev/net/tun",
    "/dev/loop-control",
    "/dev/vsock",
    "/dev/vhost-vsock",
    "/dev/userfaultfd",
):
    fails(name, lambda name=name: os.open(name, os.O_RDONLY))
for name in (
    "/proc/sysrq-trigger",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/self/oom_score_adj",
    "/proc/self/uid_map",
    "/proc/self/setgroups",
    "/proc/1/oom_score_adj",
    "/proc/sys/user/max_user_namespaces",
    "/proc/self/attr/current",
    "/proc/self/loginuid",
    "/proc/self/clear_refs",
    "/proc/self/coredump_filter",
):
    fails(name, lambda name=name: os.open(name, os.O_WRONLY))
try:
    with open("/proc/kallsyms") as symbols:
        addresses = {line.split()[0] for _, line in zip(range(1000), symbols, strict=False)}
except OSError:
    addresses = set()
held("kernel addresses") if all(int(address, 16) == 0 for address in addresses) else escaped("kernel addresses")
