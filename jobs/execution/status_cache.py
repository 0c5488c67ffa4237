"""Status cache in Redis: each execution is read from Postgres at most once a second, however many clients poll it.

Invariant: nothing served is older than a second, by Redis's clock and by ours. The second begins before Postgres is
read; an answer that comes after it, or after `notify_change` ended it early, is not stored. Entries are signed: write
access to Redis is not enough to forge one. Without Redis each process has its own cache, and a change is visible at
once only in the process that made it.
"""

from __future__ import annotations

import hmac
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

import redis
from django.conf import settings
from django.db import connection, transaction
from django.utils.crypto import salted_hmac

from jobs.db.transactions import release_connection
from jobs.db.ttl_cache import TTLCache
from jobs.db.wakeups import BEAT_CHANNEL, CAPACITY_FREED, WORK, BestEffortRedis, best_effort_redis, log_channel

# A client polls after these pauses while another one loads; the last one repeats.
POLL_INTERVALS_SECONDS = (0.005, 0.01, 0.02, 0.05)
MAX_WAIT_SECONDS = 1.0
# After this long without an answer from the loader, another client loads.
LOADER_LOCK_SECONDS = 0.25
NOTIFY_BATCH_EXECUTIONS = 200
SIGNING_SALT = "punctual.status_cache"
SIGNATURE_BYTES = 32
READ_AT_STRUCT = struct.Struct(">d")

# A hash for each execution: the token of its second (`epoch`), and for each viewpoint the value (`v:`) or the time at
# which a client began to load it (`c:`). Returns [value], [nil, epoch] to the client that is to load it, or [] while
# another one loads.
LOOKUP_SCRIPT = """
local known = redis.call('HMGET', KEYS[1], 'v:' .. ARGV[1], 'c:' .. ARGV[1], 'epoch')
if known[1] then return {known[1]} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if known[2] and now - known[2] < tonumber(ARGV[4]) then return {} end
redis.call('HSET', KEYS[1], 'c:' .. ARGV[1], now)
if known[3] then return {false, known[3]} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {false, ARGV[2]}
"""
# A value of another epoch was read too long ago, or before a change.
STORE_SCRIPT = """
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'c:' .. ARGV[2])
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'v:' .. ARGV[2], ARGV[3]) end
return 1
"""
# Only the value that was read: it may have been replaced since.
DROP_SCRIPT = """
if redis.call('HGET', KEYS[1], 'v:' .. ARGV[1]) == ARGV[2] then redis.call('UNLINK', KEYS[1]) end
return 1
"""


@dataclass(frozen=True, slots=True)
class CacheEntryKey:
    """The place of a value: a value signed for one key is invalid under any other."""

    execution_id: UUID
    viewpoint: str

    @property
    def key(self) -> str:
        return redis_key(self.execution_id)


def read_through(entry: CacheEntryKey, read: Callable[[], bytes]) -> bytes:
    """Return what `read` returns, or returned for the same viewpoint less than a second ago."""
    milliseconds = int(settings.PUNCTUAL_STATUS_CACHE_SECONDS * 1000)
    # Uncommitted changes are visible to their own transaction only.
    if not milliseconds or connection.in_atomic_block:
        return read()
    store = best_effort_redis()
    deadline, pauses = time.monotonic() + MAX_WAIT_SECONDS, iter(POLL_INTERVALS_SECONDS)
    pause = 0.0
    while True:
        match _look_up(store, entry, milliseconds):
            case [bytes(stored)] if time.monotonic() < deadline:
                if (body := _verify(store, entry, stored)) is not None:
                    return body
                # The second ended on the way here, for every client that polled with us: one of them loads it again.
            case [None, bytes(epoch)]:
                return _load_and_store(store, entry, epoch, read)
            case [] if time.monotonic() < deadline:
                # The loader needs a connection, and there are fewer connections than clients.
                release_connection()
                pause = next(pauses, pause)
                time.sleep(pause)
            case None:
                return _local_cache.get(entry, read, seconds=settings.PUNCTUAL_STATUS_CACHE_SECONDS)
            case _:
                return read()


def notify_change(*execution_ids: UUID, frees_capacity: bool = False) -> None:
    """After the commit, drop the cached values of these executions and wake the clients that wait for them.

    `frees_capacity`: also tell beat, in the same round trip, that their worker can take others.
    """
    for start in range(0, len(execution_ids), NOTIFY_BATCH_EXECUTIONS):
        batch = execution_ids[start : start + NOTIFY_BATCH_EXECUTIONS]
        transaction.on_commit(partial(_invalidate_and_notify, batch, frees_capacity))


def _invalidate_and_notify(execution_ids: Sequence[UUID], frees_capacity: bool = False) -> None:
    def publish(client: redis.Redis) -> object:
        with client.pipeline(transaction=False) as pipeline:
            if frees_capacity:
                pipeline.publish(BEAT_CHANNEL, CAPACITY_FREED)
            # In this order: a woken client must see the change.
            pipeline.unlink(*map(redis_key, execution_ids))
            for execution_id in execution_ids:
                pipeline.publish(log_channel(execution_id), WORK)
            return pipeline.execute()

    _local_cache.clear()
    best_effort_redis().try_call(publish)


def redis_key(execution_id: UUID) -> str:
    return f"punctual:status:{execution_id}"


def _look_up(store: BestEffortRedis, entry: CacheEntryKey, milliseconds: int) -> object:
    return store.run_script(
        LOOKUP_SCRIPT, entry.key, entry.viewpoint, uuid4().hex, milliseconds, int(LOADER_LOCK_SECONDS * 1000)
    )


def _load_and_store(store: BestEffortRedis, entry: CacheEntryKey, epoch: bytes, read: Callable[[], bytes]) -> bytes:
    began, signed = time.time(), b""
    try:
        body = read()
        signed = _sign(entry, body, began)
    finally:
        # Also after an error: the other clients need not wait for it.
        store.run_script(STORE_SCRIPT, entry.key, epoch, entry.viewpoint, signed)
    return body


def _sign(entry: CacheEntryKey, body: bytes, read_at: float) -> bytes:
    content = READ_AT_STRUCT.pack(read_at) + body
    return _compute_signature(entry, content) + content


def _verify(store: BestEffortRedis, entry: CacheEntryKey, stored: bytes) -> bytes | None:
    """Return the value; drop it and return None if it is not signed by us or too old by our clock."""
    signature, content = stored[:SIGNATURE_BYTES], stored[SIGNATURE_BYTES:]
    if hmac.compare_digest(signature, _compute_signature(entry, content)):
        (read_at,) = READ_AT_STRUCT.unpack_from(content)
        if abs(time.time() - read_at) <= settings.PUNCTUAL_STATUS_CACHE_SECONDS:
            return content[READ_AT_STRUCT.size :]
    store.run_script(DROP_SCRIPT, entry.key, entry.viewpoint, stored)
    return None


def _compute_signature(entry: CacheEntryKey, content: bytes) -> bytes:
    message = f"{entry.execution_id} {entry.viewpoint} ".encode() + content
    return salted_hmac(SIGNING_SALT, message, algorithm="sha256").digest()


_local_cache: TTLCache[CacheEntryKey, bytes] = TTLCache()
