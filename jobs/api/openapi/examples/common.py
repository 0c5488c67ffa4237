"""Ids and values shared by all examples, which describe one nightly report and its execution."""

from __future__ import annotations

from typing import Any

Example = dict[str, Any]

JOB = "01938a40-7d0e-7b61-9a3f-4e2c8d5f6a01"
EXECUTION = "01938e8f-d2a8-7c15-8b7e-6a9d0f1e2c0c"
WORKER = "01938a02-5e41-7d92-a8c3-1b0f7e6d5c0d"
ARTIFACT = "01938a40-7c99-7e08-b4d1-3c5a9f2e1b0e"
# Hash of the program "echo hello\n".
PROGRAM_SHA256 = "5dbad7dd0b9b122dcd9956884390f4aac4738caba8ff53498a7ab6718b176c30"
SCHEDULE = "01938a40-7d12-7f3a-8c55-0d6b1c1f7a02"
CALENDAR = "01938a3f-11c0-7b06-9c1e-5f2f4b0e6d03"
QUEUE = "01938a00-0000-7a10-8a4c-9d1b7f3c2e04"
CI_CREDENTIAL = "01938a01-4be7-72c9-b0a6-3f8f5f0c9b05"
TEAM = "01938a3e-02f4-7a81-b6e0-2c7d9e4f8a07"
WEBHOOK = "01938a41-9a35-7cd8-a2d3-6c0e8a7b1f06"
CREATED_AT, UPDATED_AT = "2030-01-30T16:20:11.402118Z", "2030-01-30T16:24:45.118250Z"

UPLOAD: Example = {
    "url": "https://store.example/punctual/uploads/5dbad7dd?X-Amz-Signature=…",
    "method": "PUT",
    "headers": {"Content-Length": "11", "x-amz-checksum-sha256": "XbrX3QubEi3NmVaIQ5D0qsRzjKuo/1NJinq2cYsXbDA="},
}
