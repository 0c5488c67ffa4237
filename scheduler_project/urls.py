"""Root routes of the web server."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path
from django.views.generic import RedirectView

from jobs.api.resources.health import healthz, readyz
from jobs.api.resources.metrics import MetricsView
from scheduler_project.accounts.login import Login, redirect_home
from scheduler_project.accounts.password_change import PasswordChange

handler404 = "jobs.api.framework.problems.page_not_found"
handler500 = "jobs.api.framework.problems.server_error"

urlpatterns = [
    path("", redirect_home),
    path("login", Login.as_view(), name="login"),
    path("account/password", PasswordChange.as_view(), name="password"),
    path("logout", LogoutView.as_view(next_page="login"), name="logout"),
    path("admin/", admin.site.urls),
    path("api/v1", RedirectView.as_view(pattern_name="docs", http_method_names=["get", "head"])),
    path("api/v1/", include("jobs.api.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", MetricsView.as_view()),
]
