"""Django's admin with a site that writes down what is changed there."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class AdministrationConfig(AdminConfig):
    default_site = "scheduler_project.audited_site.AuditedSite"
