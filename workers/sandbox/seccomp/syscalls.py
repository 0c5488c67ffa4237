"""The system calls that a program may make: names for all architectures.

Invariant: calls in no list here fail with ENOSYS, including those of future kernels. Names that an architecture lacks
are ignored there.
"""

FILES = """
    access chdir chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate
    fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr
    fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat ioctl lchown lgetxattr link
    linkat listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat memfd_create mkdir mkdirat mknod mknodat
    newfstatat chmod open openat pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat
    readv removexattr removexattrat rename renameat renameat2 rmdir sendfile setxattr setxattrat splice stat statfs
    statx symlink symlinkat sync_file_range tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write
    writev
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
"""
WAITING = """
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd
    eventfd2 pause pipe pipe2 poll ppoll pselect6 select signalfd signalfd4 timerfd_create timerfd_gettime
    timerfd_settime
"""
MEMORY = """
    brk get_mempolicy madvise map_shadow_stack membarrier mincore mlock mlock2 mlockall mmap mprotect mremap mseal
    msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages
"""
PROCESSES = """
    arch_prctl capget capset clone execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv
    futex_wake get_robust_list getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority
    getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set kill landlock_add_rule
    landlock_create_ruleset landlock_restrict_self personality pidfd_open pidfd_send_signal prctl prlimit64
    restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
    rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
    sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
    sched_setscheduler sched_yield seccomp set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setpgid
    setpriority setregid setresgid setresuid setreuid setrlimit setsid setuid sigaltstack tgkill tkill vfork wait4
    waitid
"""
TIME = """
    alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create
    timer_delete timer_getoverrun timer_gettime timer_settime times
"""
SOCKETS = """
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg
    sendto setsockopt shutdown socket socketpair
"""
MESSAGES = """
    mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget
    semop semtimedop shmat shmctl shmdt shmget
"""
SYSTEM = "getrandom sysinfo uname"

ALLOWED = frozenset(" ".join((FILES, WAITING, MEMORY, PROCESSES, TIME, SOCKETS, MESSAGES, SYSTEM)).split())

# Refused without a cgroup, as nothing would count the memory that they allocate outside of processes.
UNMETERED = frozenset(("memfd_create", "msgget", "semget", "shmget"))

# They would only sync the host's disks: a program can only write to memory.
NO_OPERATION = frozenset(("sync", "syncfs"))

# Refused with EPERM, as for any unprivileged process.
REFUSALS = """
    add_key keyctl request_key
    bpf perf_event_open userfaultfd fanotify_init fanotify_mark lookup_dcookie syslog
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
    mount umount2 pivot_root chroot fsconfig fsmount fsopen fspick mount_setattr move_mount open_tree
    open_tree_attr unshare setns
    name_to_handle_at open_by_handle_at
    create_module delete_module finit_module init_module kexec_file_load kexec_load reboot
    acct quotactl quotactl_fd swapoff swapon setdomainname sethostname vhangup ioperm iopl
    adjtimex clock_adjtime clock_settime settimeofday
    mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node
"""
REFUSED = frozenset(REFUSALS.split())

# Programs fall back to calls whose arguments a filter can read. Listed for documentation: ENOSYS is the default.
ABSENCES = "clone3 io_uring_enter io_uring_register io_uring_setup memfd_secret modify_ldt openat2"
ABSENT = frozenset(ABSENCES.split())
