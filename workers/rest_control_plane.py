"""The control plane of workers that have nothing but its address and a token.

What it answers to a question for work is claimed already: a run takes its claim from what was delivered, once. A call
that may be repeated outlasts an outage shorter than a lease; the fence makes the repetition harmless.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, TypeVar
from uuid import UUID

from jobs.errors import PunctualError, StaleAttempt, StorageUnavailable, WorkerLeaseLost
from jobs.protocol import (
    MAX_CHUNKS_SAID,
    Chunk,
    Claimed,
    Hold,
    Moved,
    Offer,
    Order,
    Progress,
    Registration,
    Report,
    StoredOutput,
    Usage,
)
from jobs.states import Reason
from jobs.storable import storable_text
from workers import rest_format
from workers.persistence import REPORT_FOR_SECONDS, persist
from workers.rest_transport import JsonObject, RestTransport

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")
Key = TypeVar("Key")
Value = TypeVar("Value")

# Beyond what the server waits: the way there and back.
CLAIM_MARGIN_SECONDS = 5.0
MAX_ERROR_LENGTH = 16_000
MAX_REMEMBERED = 10_000
Pair = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the control plane asks of its workers."""

    protocol: int
    lease_seconds: float
    renew_seconds: float
    claim_wait_seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    holds: Sequence[Hold] = ()
    orders: Sequence[Order] = ()


class RestControlPlane:
    def __init__(self, transport: RestTransport) -> None:
        self._transport = transport
        self._changed = threading.Condition()
        self._delivered: dict[Hold, Claimed] = {}
        # A program that ran must not run again because the end of its attempt could not be told.
        self._known: OrderedDict[Hold, None] = OrderedDict()
        self._addresses: OrderedDict[str, str] = OrderedDict()

    def read_terms(self) -> Terms:
        answer = self._transport.call("GET", "workers/terms")
        with rest_format.understood():
            return Terms(
                int(answer["protocol"]),
                float(answer["lease_seconds"]),
                float(answer["renew_seconds"]),
                float(answer["claim_wait_seconds"]),
            )

    def register(self, offer: Offer) -> Registration:
        body = asdict(offer) | {"instance": str(offer.instance), "capabilities": list(offer.capabilities)}
        answer = persist(lambda: self._transport.call("POST", "workers/register", body))
        with rest_format.understood():
            return Registration(UUID(answer["worker_id"]), int(answer["incarnation"]))

    def renew(self, registration: Registration, held: Iterable[Pair], usage: Usage | None = None) -> list[Order]:
        """Not repeated here: whoever renews does so in a rhythm of its own."""
        used = None if usage is None else asdict(usage)
        return rest_format.orders(self._say(registration, "heartbeat", held=rest_format.pairs(held), usage=used))

    def drain(self, registration: Registration) -> None:
        self._say(registration, "drain")

    def leave(self, registration: Registration) -> None:
        self._say(registration, "leave")

    def ask_for_work(self, registration: Registration, held: Iterable[Pair], *, wait_seconds: float) -> Work:
        """Waits for it; what comes is claimed, and to be run. Not repeated: what got lost on its way comes again."""
        answer = self._say(
            registration,
            "claim",
            seconds=wait_seconds + CLAIM_MARGIN_SECONDS,
            held=rest_format.pairs(held),
            wait_seconds=wait_seconds,
        )
        with rest_format.understood():
            came = {rest_format.hold(registration, each): each for each in answer["executions"]}
            claims = {hold: (rest_format.claimed(each), rest_format.addresses(each)) for hold, each in came.items()}
        with self._changed:
            fresh = [hold for hold in claims if hold not in self._known]
            for hold in fresh:
                self._delivered[hold], addresses = claims[hold]
                _remember(self._known, hold, None)
                for sha256, url in addresses.items():
                    _remember(self._addresses, sha256, url)
        return Work(fresh, rest_format.orders(answer))

    def claim(self, hold: Hold) -> Claimed:
        with self._changed:
            claimed = self._delivered.pop(hold, None)
            self._changed.notify_all()
        if claimed is None:
            raise StaleAttempt
        return claimed

    def give_back_untaken(self, seconds: float) -> None:
        """What was delivered and no run has taken in that time: nobody may wait for it until the lease ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._delivered, timeout=seconds)
            untaken, self._delivered = list(self._delivered), {}
        for hold in untaken:
            try:
                self.finish(hold, Report(Reason.RELEASED))
            except PunctualError as error:
                logger.warning("Attempt %s of %s could not be given back: %s", hold.attempt, hold.execution_id, error)

    def start(self, hold: Hold, receipt: Mapping[str, object]) -> None:
        self._persistently(hold, "start", receipt=dict(receipt))

    def log(self, hold: Hold, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        told = {} if progress is None else {"progress": asdict(progress)}
        for first in range(0, len(chunks), MAX_CHUNKS_SAID):
            said = [rest_format.chunk(chunk) for chunk in chunks[first : first + MAX_CHUNKS_SAID]]
            self._persistently(hold, "logs", chunks=said, **told)
            told = {}
        if told:
            self._persistently(hold, "logs", chunks=[], **told)

    def finish(self, hold: Hold, report: Report) -> Moved | None:
        """None when an earlier try had arrived though its answer had not."""
        body = asdict(report) | {"error": storable_text(report.error, MAX_ERROR_LENGTH)}
        tries = 0

        def finish() -> JsonObject | None:
            nonlocal tries
            tries += 1
            try:
                return self._tell(hold, "complete", **body)
            except StaleAttempt:
                if tries > 1:
                    return None
                raise

        answer = persist(finish, REPORT_FOR_SECONDS)
        if answer is None:
            return None
        with rest_format.understood():
            return Moved(hold.execution_id, UUID(answer["job_id"]), UUID(answer["run_id"]), str(answer["status"]))

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        """Not repeated here: whoever reads starts over."""
        with self._changed:
            url = self._addresses.get(sha256)
        if url is None:
            raise StorageUnavailable("The address of the artifact was not given.")
        return self._transport.download(url)

    def store_output(self, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None:
        """Not repeated here: whoever stores has a patience of its own, and gets a fresh address each time."""
        upload = self._tell(hold, "outputs", size=output.size, sha256=output.sha256)
        body.seek(0)
        with rest_format.understood():
            method, url, headers = str(upload["method"]), str(upload["url"]), dict(upload["headers"])
        self._transport.upload(method, url, headers, body)

    def _say(
        self, registration: Registration, verb: str, *, seconds: float | None = None, **body: object
    ) -> JsonObject:
        path = f"workers/{registration.worker_id}/{verb}"
        said = {"incarnation": registration.incarnation, **body}
        if seconds is None:
            return self._transport.call("POST", path, said, missing=WorkerLeaseLost)
        return self._transport.call("POST", path, said, missing=WorkerLeaseLost, seconds=seconds)

    def _tell(self, hold: Hold, verb: str, **body: object) -> JsonObject:
        fence = {"worker_id": str(hold.worker_id), "incarnation": hold.incarnation, "attempt": hold.attempt}
        return self._transport.call(
            "POST", f"executions/{hold.execution_id}/{verb}", fence | body, missing=StaleAttempt
        )

    def _persistently(self, hold: Hold, verb: str, **body: object) -> JsonObject:
        return persist(lambda: self._tell(hold, verb, **body))


def _remember(memory: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > MAX_REMEMBERED:
        memory.popitem(last=False)
