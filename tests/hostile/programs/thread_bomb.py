"""Threads count as processes do."""

import threading

from attack import KNOWN, escaped, held

threading.stack_size(64 * 1024)
forever = threading.Event()
count = 1
try:
    while count < 5000:
        threading.Thread(target=forever.wait, daemon=True).start()
        count += 1
except RuntimeError:
    pass
if count <= KNOWN["processes"]:
    held("threads")
else:
    escaped("threads", count)
