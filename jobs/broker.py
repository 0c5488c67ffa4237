"""Tells workers what was placed on them: run messages on their queues, many in one round trip, or a wake-up.

Messages go through the anonymous exchange straight to a list, so that a wiped Redis loses no binding; the producer is
thrown away after any error, because a batch that failed halfway tells nothing about what was sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress

from celery import Celery
from kombu import Connection, Producer

from jobs.messages import RUN_TASK, Publication, Transport, worker_queue
from jobs.wakeups import wake_worker

logger = logging.getLogger(__name__)

SHOWN_NAME_LENGTH = 60


class BrokerSender:
    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Connection | None = None
        self._producer: Producer | None = None
        # All messages are alike but for a few fields: Celery makes the first one, and it costs as much as all the rest.
        self._template = app.amqp.as_task_v2("", RUN_TASK, args=(), ignore_result=True)

    def send(self, batch: Sequence[Publication]) -> None:
        # Nobody would ever read the list of a worker that asks over HTTP.
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
                logger.warning("The broker's options turn batched publishing off; every message costs a round trip")
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
                "shadow": publication.job_name[:SHOWN_NAME_LENGTH],
                "argsrepr": repr(args),
            },
            retry=False,
            **self._template.properties | {"correlation_id": task_id},
        )
