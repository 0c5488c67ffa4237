"""Every address that web answers."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path
from django.views.generic import RedirectView

from jobs.api.health import healthz, readyz
from jobs.api.metrics import Metrics
from scheduler_project.counted_login import Login, home

handler404 = "jobs.api.problems.page_not_found"
handler500 = "jobs.api.problems.server_error"

urlpatterns = [
    path("", home),
    path("login", Login.as_view(), name="login"),
    path("logout", LogoutView.as_view(next_page="login"), name="logout"),
    path("admin/", admin.site.urls),
    path("api/v1", RedirectView.as_view(pattern_name="docs", http_method_names=["get", "head"])),
    path("api/v1/", include("jobs.api.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", Metrics.as_view()),
]
