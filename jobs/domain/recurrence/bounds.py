"""Limits of schedules."""

from datetime import UTC, datetime, timedelta

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
MAX_EXPRESSION_LENGTH = 255
MIN_EVERY = timedelta(seconds=1)
MAX_EVERY = timedelta(days=3653)
MAX_EXCLUDED_DATES = 3660
# The solar year repeats: an event that does not occur for this long never occurs.
MAX_SOLAR_WAIT = timedelta(days=731)
RESOLUTION = timedelta(microseconds=1)
