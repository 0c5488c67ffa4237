"""How long is waited between two questions to the server, and how long it is asked to wait with us."""

from __future__ import annotations

POLL_SECONDS = 0.25
SLOWEST_POLL_SECONDS = 1.0
LONGEST_POLL_SECONDS = 20  # so long the server is asked to wait for something to come
LONGEST_WAIT_SECONDS = 86_400.0
