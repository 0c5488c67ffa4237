"""The scan order of a pass over more candidates than it may scan.

A pass starts at the top, because free capacity belongs to the highest rank, and spends the second half of its steps
where earlier passes stopped. If a pass placed executions beyond that, the last quarter goes there: the next pass finds
more of them at once, not only after scanning everything before.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.dispatch.placement_inputs import TOP_RANK, RankPosition


@dataclass(frozen=True, slots=True)
class ScanProgress:
    reached: RankPosition | None = None  # every candidate before it was scanned, by one pass or another
    placing: RankPosition | None = None  # the last pass placed executions after it

    def __bool__(self) -> bool:
        return self.reached is not None or self.placing is not None


class ScanCursor:
    """`limit`: how many candidates a pass scans."""

    def __init__(self, progress: ScanProgress, limit: int) -> None:
        self.at = TOP_RANK
        self.scanned = 0
        self._limit = limit
        # Both None: the scan has jumped to where it continues.
        self._reached = (progress.reached or TOP_RANK) if progress else None
        self._placing = progress.placing
        self._left_at: RankPosition | None = None  # where it jumped to `placing`

    @property
    def is_finished(self) -> bool:
        return self.scanned >= self._limit

    def count(self, scanned: int) -> None:
        self.scanned = scanned if self.at == TOP_RANK else self.scanned + scanned

    def move_on(self, end: RankPosition) -> None:
        self.at = end
        if self._reached is not None and self.scanned >= self._limit / 2:
            self.at, self._reached = max(end, self._reached), None
        elif self._reached is None and self._placing is not None and self.scanned >= self._limit * 3 / 4:
            if self._placing > end:
                self.at, self._left_at = self._placing, end
            self._placing = None

    def stopped(self, end: RankPosition) -> ScanProgress:
        """Return the progress if candidates and capacity are left."""
        if self._left_at is not None:
            return ScanProgress(self._left_at, end)
        return ScanProgress(max(end, self._reached or end), self._placing)

    def full(self) -> ScanProgress:
        """Return the progress if the capacity is used up."""
        if self._reached is None and self._placing is None:
            return ScanProgress(self._left_at, self.at if self.at != TOP_RANK else None)
        return ScanProgress(max(self.at, self._reached or self.at), self._placing)

    def exhausted(self, *, placed: bool) -> ScanProgress:
        """Return the progress if no candidates are left; `placed`: the last scan placed some."""
        return ScanProgress(self._left_at, self.at if placed and self.at != TOP_RANK else None)
