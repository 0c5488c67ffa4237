"""Takes all the watchers that a user may have: others of the same user need some."""

import select
import time

from attack import LIBC, escaped, held

instances = 0
while instances < 5000 and LIBC.inotify_init1(0) >= 0:
    instances += 1
held("inotify") if instances < 5000 else escaped("inotify")
polls = []
try:
    while len(polls) < 5000:
        polls.append(select.epoll())
except OSError:
    held("epoll")
else:
    escaped("epoll")
print("taken", flush=True)
time.sleep(1000)
