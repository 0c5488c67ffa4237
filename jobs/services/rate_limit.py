"""How many requests somebody may make in a minute: a bucket that holds a minute's worth and fills up evenly.

Invariant: whoever asks, of however many processes, takes from one bucket in one step of Redis, by its clock. Without
Redis nobody is counted and nobody waits: a limit that is not kept for a moment is better than an API that is down.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from django.conf import settings

from jobs import conf
from jobs.models import OwnerQuota
from jobs.services.addresses import network_of
from jobs.wakeups import hurried_redis

# So long a process goes by the limit that it has read for an owner.
LIMIT_KEPT_SECONDS = 10.0
MOST_LIMITS_KEPT = 10_000

# The generic cell rate algorithm: all that is kept is when the bucket will be full again, in microseconds. It answers
# whether one was taken, how many are left, and the microseconds until the bucket is full and until one can be taken.
TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local minute = 60000000
local each = math.max(1, math.floor(minute / ARGV[1]))
local full = tonumber(redis.call('GET', KEYS[1]) or now) or now
-- Past, or what cannot have been written here.
if not (full > now and full <= now + minute) then full = now end
local after = full + each
if after - now > minute then return {0, 0, full - now, after - now - minute} end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.max(1, math.ceil((after - now) / 1000)))
return {1, math.floor((minute - (after - now)) / each), after - now, 0}
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """Of somebody who has made a request; the times are whole seconds, rounded up."""

    limit: int
    remaining: int
    reset_seconds: int  # until the whole limit is there again
    retry_seconds: int  # until this request could be made; 0: it is admitted

    @property
    def admitted(self) -> bool:
        return not self.retry_seconds


def take_for_owner(owner_id: int) -> Standing | None:
    """Counts a request of an owner, whichever token it came with. None: there is no limit, or nobody counts."""
    return _take(f"owner:{owner_id}", limit_of(owner_id))


def take_for_address(address: str) -> Standing | None:
    """Counts a request of somebody unknown."""
    return _take(f"address:{network_of(address)}", settings.PUNCTUAL_REQUESTS_PER_MINUTE)


def limit_of(owner_id: int) -> int:
    """Requests a minute; 0: without limit."""
    known, kept_until = _limits.get(owner_id, (None, 0.0))
    now = time.monotonic()
    if now < kept_until:
        own = known
    else:
        if len(_limits) >= MOST_LIMITS_KEPT:
            _limits.clear()
        # Before it is read: the others go by the former one meanwhile.
        _limits[owner_id] = (known, now + LIMIT_KEPT_SECONDS)
        own = OwnerQuota.objects.filter(owner_id=owner_id).values_list("requests_per_minute", flat=True).first()
        _limits[owner_id] = (own, now + LIMIT_KEPT_SECONDS)
    return settings.PUNCTUAL_REQUESTS_PER_MINUTE if own is None else min(own, conf.MAX_REQUESTS_PER_MINUTE)


def _take(who: str, limit: int) -> Standing | None:
    if not limit:
        return None
    match hurried_redis().run(TAKE, f"punctual:requests:{who}", limit):
        case [int(), int(remaining), int(full), int(possible)]:
            return Standing(limit, remaining, math.ceil(full / 1e6), math.ceil(possible / 1e6))
        case _:
            return None


_limits: dict[int, tuple[int | None, float]] = {}
