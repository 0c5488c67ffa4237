"""/usage: who the caller is, what they use, and may use."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.views import ApiView, user_of
from jobs.services.storage_quota import read_use


class StorageUseOutput(serializers.Serializer[Any]):
    used_bytes = serializers.IntegerField()
    artifacts_bytes = serializers.IntegerField()
    outputs_bytes = serializers.IntegerField()
    logs_bytes = serializers.IntegerField(help_text="Those that were archived.")
    quota_bytes = serializers.IntegerField(help_text="0: without limit.")


class OwnUseOutput(serializers.Serializer[Any]):
    owner = serializers.CharField(help_text="Who the caller is: the name that their jobs show.")
    storage = StorageUseOutput()


class Usage(ApiView):
    @extend_schema(operation_id="usage_read", responses=OwnUseOutput)
    def get(self, request: Request) -> Response:
        user = user_of(request)
        return Response(OwnUseOutput({"owner": user.get_username(), "storage": read_use(user.pk)}).data)
