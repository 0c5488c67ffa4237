"""/metrics: how the installation stands, in the words of Prometheus, for staff and their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request

from jobs.api.permissions import WithinScope
from jobs.api.views import ApiView
from jobs.services.counting import Standing, read_standing

COUNTERS = {
    "due_window_believed": "Times that a beat slept by the due window's word.",
    "due_window_doubted": "Times that a beat asked Postgres instead of the due window.",
    "due_window_unannounced": "Schedules that were due although the due window had not said so.",
    "due_window_lost": "Announcements that Redis did not take.",
}


class _Collector(Collector):
    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        for name, words in COUNTERS.items():
            yield CounterMetricFamily(f"punctual_{name}", words, value=self._standing.counters.get(name, 0))
        yield _by("punctual_executions", "Executions that have not ended.", "state", self._standing.executions)
        yield _by("punctual_workers", "Workers by status.", "status", self._standing.workers)
        yield GaugeMetricFamily(
            "punctual_overdue_seconds",
            "For how long something that is due has waited to be fired or tried again.",
            value=self._standing.overdue_seconds,
        )


def _by(name: str, words: str, label: str, numbers: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=[label])
    for value, number in numbers.items():
        family.add_metric([value], number)
    return family


class Metrics(ApiView):
    permission_classes = [WithinScope, IsAdminUser]

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        registry = CollectorRegistry()
        registry.register(_Collector(read_standing()))
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
