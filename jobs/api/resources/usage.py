"""/usage: the caller's name, usage and quotas."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access.quotas import read_quota_usages
from jobs.access.rate_limit import read_request_limit
from jobs.api.framework.views import ApiView, require_user
from jobs.storage.quota import read_usage


class StorageUsageOutput(serializers.Serializer[Any]):
    used_bytes = serializers.IntegerField()
    artifacts_bytes = serializers.IntegerField()
    outputs_bytes = serializers.IntegerField()
    logs_bytes = serializers.IntegerField(help_text="Archived logs.")
    quota_bytes = serializers.IntegerField(help_text="0 for no limit.")


class QuotaUsageOutput(serializers.Serializer[Any]):
    used = serializers.IntegerField()
    quota = serializers.IntegerField(help_text="0 for no limit.")


class RequestQuotaOutput(serializers.Serializer[Any]):
    quota = serializers.IntegerField(help_text="0 for no limit. RateLimit headers show the rest.")


class AccountUsageOutput(serializers.Serializer[Any]):
    owner = serializers.CharField(help_text="User name of the caller.")
    storage = StorageUsageOutput()
    jobs = QuotaUsageOutput(help_text="Jobs that are not deleted.")
    concurrent_executions = QuotaUsageOutput(help_text="Executions that are placed or running.")
    requests_per_minute = RequestQuotaOutput()


class Usage(ApiView):
    @extend_schema(operation_id="usage_read", summary="Read your usage and quotas", responses=AccountUsageOutput)
    def get(self, request: Request) -> Response:
        """Return jobs, concurrent executions, storage and requests, each with its quota."""
        user = require_user(request)
        jobs, executions = read_quota_usages(user.pk)
        usage = {
            "owner": user.get_username(),
            "storage": read_usage(user.pk),
            "jobs": jobs,
            "concurrent_executions": executions,
            "requests_per_minute": {"quota": read_request_limit(user.pk)},
        }
        return Response(AccountUsageOutput(usage).data)
