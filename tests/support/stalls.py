"""Stalls of the machine: how long it delays an idle process, the lower bound of every lateness.

A separate process repeats an empty query. Whatever delays it would delay any beat: a machine that stalls for a second
fires nothing in it.
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
    seconds = 0.0  # of the longest stall; known after the block


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
