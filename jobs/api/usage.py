"""/usage: who the caller is, what they use, and may use."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.views import ApiView, user_of
from jobs.services.owner_limits import read_uses
from jobs.services.rate_limit import limit_of
from jobs.services.storage_quota import read_use


class StorageUseOutput(serializers.Serializer[Any]):
    used_bytes = serializers.IntegerField()
    artifacts_bytes = serializers.IntegerField()
    outputs_bytes = serializers.IntegerField()
    logs_bytes = serializers.IntegerField(help_text="Those that were archived.")
    quota_bytes = serializers.IntegerField(help_text="0: without limit.")


class CountOutput(serializers.Serializer[Any]):
    used = serializers.IntegerField()
    quota = serializers.IntegerField(help_text="0: without limit.")


class RequestsOutput(serializers.Serializer[Any]):
    quota = serializers.IntegerField(help_text="0: without limit. What is left of it is told by each answer's headers.")


class OwnUseOutput(serializers.Serializer[Any]):
    owner = serializers.CharField(help_text="Who the caller is: the name that their jobs show.")
    storage = StorageUseOutput()
    jobs = CountOutput(help_text="Those that are not deleted.")
    concurrent_executions = CountOutput(help_text="Those that are placed or running.")
    requests_per_minute = RequestsOutput()


class Usage(ApiView):
    @extend_schema(operation_id="usage_read", summary="Read what you use and may use", responses=OwnUseOutput)
    def get(self, request: Request) -> Response:
        """Jobs, concurrent executions, storage and requests, with the quota of each."""
        user = user_of(request)
        jobs, executions = read_uses(user.pk)
        told = {
            "owner": user.get_username(),
            "storage": read_use(user.pk),
            "jobs": jobs,
            "concurrent_executions": executions,
            "requests_per_minute": {"quota": limit_of(user.pk)},
        }
        return Response(OwnUseOutput(told).data)
