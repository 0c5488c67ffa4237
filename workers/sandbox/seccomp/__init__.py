"""The system calls that programs may make, and the compiler of the seccomp filter.

Entry points: `syscalls`, the lists; `compiler.compile_host_filter`.
"""
