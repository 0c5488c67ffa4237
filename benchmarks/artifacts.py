"""What a run waits for its program: one that is cached, one that is not, and one that a hundred runs want at once.

`.venv/bin/python -m benchmarks.artifacts [--megabytes 20] [--at-once 100] [--rounds 7] [--hits 2000]`

The cache and the object store are real. Requests are counted by a proxy before the store, which is not there while
speed is measured: a bare boto3 download into a file, without a hash and without waiting for the disk, is the floor.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

MEGABYTE = 2**20
PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Stored:
    sha256: str
    size: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=20, help="of the artifact")
    parser.add_argument("--at-once", type=int, default=100, help="runs that want it while it is cold")
    parser.add_argument("--rounds", type=int, default=7, help="of cold fetches and bare downloads in turns")
    parser.add_argument("--hits", type=int, default=2000)
    options = parser.parse_args()
    about = machine()
    with laboratory() as lab:
        stored = _store(options.megabytes * MEGABYTE)
        rounds = [_round(lab.directory / f"round-{number}", stored) for number in range(options.rounds)]
        seconds, calls, downloads = _count(lab.directory / "counted", stored, options.hits, options.at_once)
    bare, ours = ([each[which] for each in rounds] for which in (0, 1))
    result = {
        "benchmark": "artifacts", **about, "megabytes": options.megabytes, "at_once": options.at_once,
        "bare_mb_per_s": round(options.megabytes / statistics.median(bare)),
        "cold_mb_per_s": round(options.megabytes / statistics.median(ours)),
        "hit_p50_us": round(1e6 * percentile(seconds, 0.5), 1), "hit_p99_us": round(1e6 * percentile(seconds, 0.99), 1),
    }  # fmt: skip
    targets = {
        "requests_of_hits": Target(calls, at_most=0),
        "downloads_at_once": Target(downloads, at_least=1, at_most=1),
        "share_of_bare": Target(statistics.median(b / o for b, o in rounds), at_least=0.4),
        "hit_p50_ms": Target(1000 * percentile(seconds, 0.5), at_most=1),
    }
    return conclude(result, targets)


def _store(size: int) -> Stored:
    from jobs.storage import s3

    s3.create_bucket()
    data = secrets.token_bytes(size)
    sha256 = hashlib.sha256(data).hexdigest()
    s3.put_artifact(sha256, data)
    return Stored(sha256, size)


def _round(directory: Path, stored: Stored) -> tuple[float, float]:
    """Seconds of a bare download, and of a fetch through a cache that has nothing."""
    from jobs.storage import s3
    from workers.run.artifact_cache import ArtifactCache

    cache = ArtifactCache(directory, 2 * stored.size)
    bare = _seconds(lambda: _download(directory / "bare.part", stored))
    ours = _seconds(lambda: os.close(cache.open(stored.sha256, stored.size, s3.read_artifact)))
    megabytes = stored.size / MEGABYTE
    say(f"MB/s: bare {megabytes / bare:.0f}, ours {megabytes / ours:.0f}")
    return bare, ours


def _download(path: Path, stored: Stored) -> None:
    from django.conf import settings

    from jobs.storage import s3

    # The very client, so that connections are as warm.
    body = s3._client(s3.TRANSFER_TIMEOUTS).get_object(
        Bucket=settings.PUNCTUAL_S3_BUCKET, Key=s3.artifact_key(stored.sha256)
    )["Body"]
    with path.open("wb") as file:
        for piece in body.iter_chunks(s3.CHUNK_BYTES):
            file.write(piece)
    assert path.stat().st_size == stored.size


def _count(directory: Path, stored: Stored, hits: int, at_once: int) -> tuple[list[float], int, int]:
    """Seconds of each hit; what all of them asked of the store; what as many that came at once asked before."""
    from django.conf import settings

    from jobs.storage import s3
    from tests.support.s3_proxy import S3Proxy
    from workers.run.artifact_cache import ArtifactCache

    cache, barrier = ArtifactCache(directory, 2 * stored.size), threading.Barrier(at_once)

    def open_it() -> None:
        os.close(cache.open(stored.sha256, stored.size, s3.read_artifact))

    def open_together() -> None:
        barrier.wait(PATIENCE_SECONDS)
        open_it()

    with S3Proxy(str(settings.PUNCTUAL_S3_ENDPOINT_URL)) as proxy:
        settings.PUNCTUAL_S3_ENDPOINT_URL = proxy.url
        s3._client.cache_clear()
        with ThreadPoolExecutor(at_once) as threads:
            for opened in [threads.submit(open_together) for _ in range(at_once)]:
                opened.result(PATIENCE_SECONDS)
        downloads = proxy.calls()
        seconds = [_seconds(open_it) for _ in range(hits)]
        return seconds, proxy.calls() - downloads, downloads


def _seconds(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
