"""The broker side of dispatch: sends run messages to workers' queues, many in one round trip, or wakes REST workers.

Messages go through the anonymous exchange straight to a list, so a wiped Redis loses no binding. The producer is
discarded after any error, because a batch that failed halfway does not reveal which messages were sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress

from celery import Celery
from kombu import Connection, Producer

from jobs.db.wakeups import wake_worker
from jobs.domain.messages import RUN_TASK, Publication, Transport, worker_queue

logger = logging.getLogger(__name__)

MAX_SHADOW_NAME_CHARACTERS = 60


class BrokerSender:
    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Connection | None = None
        self._producer: Producer | None = None
        # Messages differ in a few fields only, and building one with Celery costs as much as sending many.
        self._template = app.amqp.as_task_v2("", RUN_TASK, args=(), ignore_result=True)

    def send(self, batch: Sequence[Publication]) -> None:
        # A REST worker reads no queue.
        for worker_id in {p.worker_id for p in batch if p.transport == Transport.REST}:
            wake_worker(worker_id)
        if messages := [p for p in batch if p.transport != Transport.REST]:
            self._send(messages)

    def _send(self, batch: Sequence[Publication]) -> None:
        try:
            producer = self._open()
            with producer.batch():  # type: ignore[attr-defined]  # new in kombu 5.7, the stubs are older
                for publication in batch:
                    self._publish(producer, publication)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _open(self) -> Producer:
        if self._producer is None:
            self._connection = self._app.connection_for_write()
            self._connection.ensure_connection(max_retries=1, interval_start=0, timeout=3)
            self._producer = Producer(self._connection)
            if not self._producer.supports_batch_publish:  # type: ignore[attr-defined]
                logger.warning("The broker's options turn off batched publishing; each message costs a round trip")
        return self._producer

    def _publish(self, producer: Producer, publication: Publication) -> None:
        message = publication.message
        task_id, args = message.task_id, message.args
        _, kwargs, embed = self._template.body
        producer.publish(
            json.dumps((args, kwargs, embed)),
            exchange="",
            routing_key=worker_queue(publication.worker_id),
            content_type="application/json",
            content_encoding="utf-8",
            headers=self._template.headers
            | {
                "id": task_id,
                "root_id": task_id,
                "shadow": publication.job_name[:MAX_SHADOW_NAME_CHARACTERS],
                "argsrepr": repr(args),
            },
            retry=False,
            **self._template.properties | {"correlation_id": task_id},
        )
