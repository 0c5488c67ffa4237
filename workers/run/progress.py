"""Parser for the progress that a run reports on its progress descriptor.

A line is `PERCENT MESSAGE`: a number from 0 to 100 or `-` for unknown, then an optional message. Other lines are
ignored, the last valid one counts, and the effort is bounded however much a run writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jobs.domain.text_validation import to_single_line
from jobs.domain.worker_protocol import MAX_PROGRESS_LENGTH, Progress

MAX_LINE_BYTES = 1024
MAX_LINES = 20  # parsed per read
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
        """Parse the last line even without a newline."""
        self.feed(b"\n")


def parse_progress(line: bytes) -> Progress | None:
    match = LINE.fullmatch(line[:MAX_LINE_BYTES].decode("utf-8", "replace").strip())
    if match is None:
        return None
    percent = None if match[1] == "-" else float(match[1])
    message = to_single_line(match[2] or "", MAX_PROGRESS_LENGTH)
    if (percent is None and not message) or (percent is not None and percent > 100):
        return None
    return Progress(percent, message)
