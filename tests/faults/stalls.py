"""How long the machine itself kept a process waiting that does next to nothing: the floor of every lateness.

A process of its own asks Postgres for nothing, again and again. What held it up would have held up beat, whatever beat
is made of; a machine that stands still for a second fires nothing in it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PAUSE_SECONDS = 0.01
END_SECONDS = 30
_PROGRAM = f"""
import select, sys, time
import psycopg
longest = 0.0
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        time.sleep({PAUSE_SECONDS})
        connection.execute("SELECT 1")
        longest = max(longest, time.monotonic() - began - {PAUSE_SECONDS})
print(longest)
"""


class Stalls:
    seconds = 0.0  # of the longest; known once it is over


@contextmanager
def watched_stalls(database_url: str) -> Iterator[Stalls]:
    stalls = Stalls()
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, database_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdin is not None
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "ready\n"
        try:
            yield stalls
        finally:
            try:
                told, _ = watcher.communicate("\n", timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                watcher.kill()
                raise
            stalls.seconds = float(told)
