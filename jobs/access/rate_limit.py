"""Rate limits: a bucket per owner, address or worker token holds a minute's requests and refills evenly.

All processes take from one bucket in one atomic Redis script, by Redis's clock. Without Redis no limit applies: an
unlimited API is better than none.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from functools import partial

from django.conf import settings

from jobs.db.ttl_cache import TTLCache
from jobs.db.wakeups import best_effort_redis
from jobs.domain import limits
from jobs.models import ApiToken, OwnerQuota

LIMIT_CACHE_SECONDS = 10.0

# The generic cell rate algorithm: Redis stores only when the bucket is full again, in microseconds. Returns whether a
# request was admitted, how many are left, and the microseconds until the bucket is full and until the next admission.
TAKE_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local minute = 60000000
local each = math.max(1, math.floor(minute / ARGV[1]))
local full = tonumber(redis.call('GET', KEYS[1]) or now) or now
-- In the past, or not a value of this script.
if not (full > now and full <= now + minute) then full = now end
local after = full + each
if after - now > minute then return {0, 0, full - now, after - now - minute} end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.max(1, math.ceil((after - now) / 1000)))
return {1, math.floor((minute - (after - now)) / each), after - now, 0}
"""


_cache: TTLCache[int, tuple[int | None]] = TTLCache()


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """The state of a bucket after a request; times are rounded up to whole seconds."""

    limit: int
    remaining: int
    reset_seconds: int  # until the bucket is full
    retry_seconds: int  # until this request is admitted; 0: it was

    @property
    def admitted(self) -> bool:
        return not self.retry_seconds


def count_owner_request(owner_id: int) -> RateLimitStatus | None:
    """Count a request of an owner, with any token. None: no limit applies."""
    return _count_request(f"owner:{owner_id}", read_request_limit(owner_id))


def count_address_request(address: str) -> RateLimitStatus | None:
    """Count an anonymous request."""
    return _count_request(f"address:{client_network(address)}", settings.PUNCTUAL_REQUESTS_PER_MINUTE)


def count_registration(token: ApiToken) -> RateLimitStatus | None:
    """Count a worker's registration, its only request that leaves permanent rows and audit entries."""
    return _count_request(f"registrations:{token.pk}", limits.WORKER_REGISTRATIONS_A_MINUTE * token.max_workers)


def client_network(address: str) -> str:
    """Return the address, or its /64 network for IPv6: one machine has 2**64 addresses of its own."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def read_request_limit(owner_id: int) -> int:
    """Return the owner's limit of requests per minute; 0: unlimited."""
    (own,) = _cache.get(owner_id, partial(_read_own_request_limit, owner_id), seconds=LIMIT_CACHE_SECONDS)
    return settings.PUNCTUAL_REQUESTS_PER_MINUTE if own is None else min(own, limits.MAX_REQUESTS_PER_MINUTE)


def _read_own_request_limit(owner_id: int) -> tuple[int | None]:
    return (OwnerQuota.objects.filter(owner_id=owner_id).values_list("requests_per_minute", flat=True).first(),)


def _count_request(bucket: str, limit: int) -> RateLimitStatus | None:
    if not limit:
        return None
    match best_effort_redis().run_script(TAKE_SCRIPT, f"punctual:requests:{bucket}", limit):
        case [int(), int(remaining), int(full), int(possible)]:
            return RateLimitStatus(limit, remaining, math.ceil(full / 1e6), math.ceil(possible / 1e6))
        case _:
            return None
