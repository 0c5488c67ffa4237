"""The verbs about where jobs run and wait, and whether the server itself is well."""

from __future__ import annotations

from cli.calls import Calls, segment
from cli.records import Queue, Worker
from cli.transport import Probe


class FleetCalls(Calls):
    def probe(self, path: str) -> Probe:
        return self._transport.probe(path)

    def workers(self, *, limit: int = 100) -> list[Worker]:
        return [Worker.parse(item) for item in self._listing("workers", {}, limit)]

    def drain_worker(self, worker_id: str) -> Worker:
        return Worker.parse(self._transport.send("POST", f"workers/{segment(worker_id)}/drain"))

    def queues(self, *, limit: int = 500) -> list[Queue]:
        return [Queue.parse(item) for item in self._listing("queues", {}, limit)]
