"""Control plane client over HTTP, for workers that have only a URL and a token.

The server claims the executions that it returns to a poll; each run then takes its claim from the delivered ones, once.
Retried calls survive an outage shorter than a lease; the fence makes retries harmless.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import IO, TypeVar
from uuid import UUID

from jobs.domain.errors import PunctualError, StaleAttempt, StorageUnavailable, WorkerLeaseLost
from jobs.domain.states import Reason
from jobs.domain.text_validation import to_storable_text
from jobs.domain.worker_protocol import (
    MAX_CHUNKS_PER_APPEND,
    AttemptFence,
    Chunk,
    ClaimedRun,
    MovedExecution,
    Progress,
    Registration,
    RunReport,
    StopOrder,
    StoredOutput,
    WorkerOffer,
    WorkerUsage,
)
from workers.control_plane import codec
from workers.control_plane.http import RESPONSE_TIMEOUT_SECONDS, JsonObject, RestTransport
from workers.control_plane.retry import REPORT_FOR_SECONDS, finish_idempotently, retry_until

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")
Key = TypeVar("Key")
Value = TypeVar("Value")

# Added to the server's own wait for the round trip.
CLAIM_MARGIN_SECONDS = 5.0
MAX_ERROR_LENGTH = 16_000
MAX_CACHE_ENTRIES = 10_000
AttemptKey = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Terms:
    """The control plane's terms for its workers."""

    protocol: int
    lease_seconds: float
    renew_seconds: float
    claim_wait_seconds: float
    token_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClaimResponse:
    fences: Sequence[AttemptFence] = ()
    orders: Sequence[StopOrder] = ()


class RestControlPlane:
    def __init__(self, transport: RestTransport) -> None:
        self._transport = transport
        self.lease_seconds: float | None = None  # granted by the last registration or renewal
        self._changed = threading.Condition()
        self._delivered: dict[AttemptFence, ClaimedRun] = {}
        # Attempts that were delivered before. If the report of a run is lost, the run must not start again.
        self._seen: OrderedDict[AttemptFence, None] = OrderedDict()
        self._artifact_urls: OrderedDict[str, str] = OrderedDict()

    def read_terms(self) -> Terms:
        answer = self._transport.call("GET", "workers/terms")
        with codec.decoding_response():
            return Terms(
                int(answer["protocol"]),
                float(answer["lease_seconds"]),
                float(answer["renew_seconds"]),
                float(answer["claim_wait_seconds"]),
                datetime.fromisoformat(until) if (until := answer["token_expires_at"]) else None,
            )

    def register(self, offer: WorkerOffer) -> Registration:
        body = asdict(offer) | {"instance": str(offer.instance), "capabilities": list(offer.capabilities)}
        answer = retry_until(lambda: self._transport.call("POST", "workers/register", body))
        with codec.decoding_response():
            self.lease_seconds = float(answer["lease_seconds"])
            return Registration(UUID(answer["worker_id"]), int(answer["incarnation"]))

    def renew(
        self, registration: Registration, held: Iterable[AttemptKey], usage: WorkerUsage | None = None
    ) -> list[StopOrder]:
        """Renew the lease, without a retry: the agent has its own renewal schedule."""
        used = None if usage is None else asdict(usage)
        answer = self._call_worker(
            registration,
            "heartbeat",
            held=codec.encode_attempts(held),
            usage=used,
            lease_seconds=self.lease_seconds,
        )
        with codec.decoding_response():
            self.lease_seconds = float(answer["lease_seconds"])
        return codec.decode_orders(answer)

    def drain(self, registration: Registration) -> None:
        self._call_worker(registration, "drain")

    def leave(self, registration: Registration) -> None:
        self._call_worker(registration, "leave")

    def poll_for_work(
        self, registration: Registration, held: Iterable[AttemptKey], *, wait_seconds: float
    ) -> ClaimResponse:
        """Wait for claimed executions, without a retry: the server delivers a lost response again."""
        answer = self._call_worker(
            registration,
            "claim",
            seconds=wait_seconds + CLAIM_MARGIN_SECONDS,
            held=codec.encode_attempts(held),
            wait_seconds=wait_seconds,
        )
        with codec.decoding_response():
            decoded = {codec.decode_fence(registration, each): each for each in answer["executions"]}
            claims = {
                fence: (codec.decode_claim(each), codec.decode_artifact_urls(each)) for fence, each in decoded.items()
            }
        with self._changed:
            fresh = [fence for fence in claims if fence not in self._seen]
            for fence in fresh:
                self._delivered[fence], urls = claims[fence]
                _cache_entry(self._seen, fence, None)
                for sha256, url in urls.items():
                    _cache_entry(self._artifact_urls, sha256, url)
        return ClaimResponse(fresh, codec.decode_orders(answer))

    def claim(self, fence: AttemptFence) -> ClaimedRun:
        with self._changed:
            claimed = self._delivered.pop(fence, None)
            self._changed.notify_all()
        if claimed is None:
            raise StaleAttempt
        return claimed

    def release_unclaimed(self, seconds: float) -> None:
        """Release what was delivered but not claimed within this time; it must not wait for the lease to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._delivered, timeout=seconds)
            unclaimed, self._delivered = list(self._delivered), {}
        for fence in unclaimed:
            try:
                self.finish(fence, RunReport(Reason.RELEASED))
            except PunctualError as error:
                logger.warning("Attempt %s of %s could not be released: %s", fence.attempt, fence.execution_id, error)

    def start(self, fence: AttemptFence, receipt: Mapping[str, object]) -> None:
        self._post_with_retry(fence, "start", receipt=dict(receipt))

    def log(self, fence: AttemptFence, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        extra = {} if progress is None else {"progress": asdict(progress)}
        for first in range(0, len(chunks), MAX_CHUNKS_PER_APPEND):
            encoded = [codec.encode_chunk(chunk) for chunk in chunks[first : first + MAX_CHUNKS_PER_APPEND]]
            self._post_with_retry(fence, "logs", chunks=encoded, **extra)
            extra = {}
        if extra:
            self._post_with_retry(fence, "logs", chunks=[], **extra)

    def finish(self, fence: AttemptFence, report: RunReport) -> MovedExecution | None:
        """Finish the attempt; return None if an earlier try succeeded but its response was lost."""
        body = asdict(report) | {"error": to_storable_text(report.error, MAX_ERROR_LENGTH)}
        finish = finish_idempotently(lambda: self._call_attempt(fence, "complete", **body))
        answer = retry_until(finish, REPORT_FOR_SECONDS)
        if answer is None:
            return None
        with codec.decoding_response():
            return MovedExecution(
                fence.execution_id, UUID(answer["job_id"]), UUID(answer["run_id"]), str(answer["status"])
            )

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        """Download an artifact, without a retry: the caller starts over."""
        with self._changed:
            url = self._artifact_urls.get(sha256)
        if url is None:
            raise StorageUnavailable("The control plane sent no URL for the artifact.")
        return self._transport.download(url)

    def store_output(self, fence: AttemptFence, output: StoredOutput, body: IO[bytes]) -> None:
        """Upload an output, without a retry: the caller has its own retry budget and gets a new URL each time."""
        upload = self._call_attempt(fence, "outputs", size=output.size, sha256=output.sha256)
        body.seek(0)
        with codec.decoding_response():
            method, url, headers = str(upload["method"]), str(upload["url"]), dict(upload["headers"])
        self._transport.upload(method, url, headers, body)

    def _call_worker(
        self, registration: Registration, verb: str, *, seconds: float = RESPONSE_TIMEOUT_SECONDS, **body: object
    ) -> JsonObject:
        path = f"workers/{registration.worker_id}/{verb}"
        fenced = {"incarnation": registration.incarnation, **body}
        return self._transport.call("POST", path, fenced, missing=WorkerLeaseLost, seconds=seconds)

    def _call_attempt(self, fence: AttemptFence, verb: str, **body: object) -> JsonObject:
        fields = {"worker_id": str(fence.worker_id), "incarnation": fence.incarnation, "attempt": fence.attempt}
        return self._transport.call(
            "POST", f"executions/{fence.execution_id}/{verb}", fields | body, missing=StaleAttempt
        )

    def _post_with_retry(self, fence: AttemptFence, verb: str, **body: object) -> JsonObject:
        return retry_until(lambda: self._call_attempt(fence, verb, **body))


def _cache_entry(cache: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > MAX_CACHE_ENTRIES:
        cache.popitem(last=False)
