"""Every address that web answers."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from jobs.api.health import healthz, readyz
from jobs.api.metrics import Metrics

handler404 = "jobs.api.problems.page_not_found"
handler500 = "jobs.api.problems.server_error"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("jobs.api.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", Metrics.as_view()),
]
