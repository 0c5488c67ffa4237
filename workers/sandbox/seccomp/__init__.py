"""The system calls that programs may make, and the compiler of the seccomp filter."""
