"""Reads how far a run says it is, from whatever bytes it writes for that.

A line is `PERCENT MESSAGE`: a number from 0 to 100 or `-` for unknown, then words that may be left out. What is no such
line is ignored, the last one counts, and of an endless line or of endless lines only a little is ever looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jobs.protocol import MAX_PROGRESS_LENGTH, Progress
from jobs.storable import plain_line

MAX_LINE_BYTES = 1024
# Of all that came at once.
MAX_LINES = 20
LINE = re.compile(r"(-|[0-9]{1,3}(?:\.[0-9]{1,9})?) ?%?(?:\s+(.*))?", re.DOTALL)


class ProgressReader:
    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report = report
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).rsplit(b"\n", MAX_LINES)
        self._rest = rest[:MAX_LINE_BYTES]
        if len(lines) == MAX_LINES:
            lines[0] = lines[0].rpartition(b"\n")[2]
        found = next((progress for line in reversed(lines) if (progress := parse_progress(line))), None)
        if found is not None:
            self._report(found)

    def close(self) -> None:
        """The run is over: its last line needs no end."""
        self.feed(b"\n")


def parse_progress(line: bytes) -> Progress | None:
    said = LINE.fullmatch(line[:MAX_LINE_BYTES].decode("utf-8", "replace").strip())
    if said is None:
        return None
    percent = None if said[1] == "-" else float(said[1])
    message = plain_line(said[2] or "", MAX_PROGRESS_LENGTH)
    if (percent is None and not message) or (percent is not None and percent > 100):
        return None
    return Progress(percent, message)
