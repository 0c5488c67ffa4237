"""/metrics: Prometheus metrics of the installation, for staff and their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request

from jobs.api.framework.permissions import RequiredScopePermission
from jobs.api.framework.views import ApiView
from jobs.telemetry.metrics import CurrentMetrics, read_metrics

COUNTER_HELP = {
    "due_window_hits": "Due window hits: sleeps of a beat based on the window alone.",
    "due_window_fallbacks": "Due window fallbacks: sleeps of a beat based on a query of Postgres.",
    "due_window_unannounced": "Due schedules that were missing in the due window.",
    "due_window_lost": "Announcements to the due window that Redis did not accept.",
}


class _Collector(Collector):
    def __init__(self, metrics: CurrentMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for name, description in COUNTER_HELP.items():
            yield CounterMetricFamily(f"punctual_{name}", description, value=self._metrics.counters.get(name, 0))
        yield _build_gauge("punctual_executions", "Unfinished executions by state.", "state", self._metrics.executions)
        yield _build_gauge("punctual_workers", "Workers by status.", "status", self._metrics.workers)
        yield GaugeMetricFamily(
            "punctual_overdue_seconds",
            "Age of the oldest instant or retry that is due and not yet processed.",
            value=self._metrics.overdue_seconds,
        )


def _build_gauge(name: str, description: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, description, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


class MetricsView(ApiView):
    permission_classes = [RequiredScopePermission, IsAdminUser]

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        registry = CollectorRegistry()
        registry.register(_Collector(read_metrics()))
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
