"""The kernel's keys belong to uids and sessions, not to sandboxes."""

import ctypes

from attack import forbidden

forbidden("keyctl", 0, ctypes.c_long(-3), 1)  # KEYCTL_GET_KEYRING_ID of the session
forbidden("keyctl", 1, 0)  # KEYCTL_JOIN_SESSION_KEYRING
forbidden("add_key", b"user", b"left-for-others", b"secret", 6, ctypes.c_long(-4))
forbidden("request_key", b"user", b"left-for-others", 0, ctypes.c_long(-4))
