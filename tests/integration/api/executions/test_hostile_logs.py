"""Hostile output: the API returns it byte for byte; admin and terminal show it escaped."""

from __future__ import annotations

import json
import re
import runpy
import unicodedata
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from jobs.logs.store import append_chunks
from tests.hostile.cases import MEBIBYTE
from tests.hostile.stage import PROGRAMS
from tests.hostile.test_logs import on_a_terminal, run_into, sandbox
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from workers.run import log_stream
from workers.run.log_stream import LogStream
from workers.sandbox.sandbox import Sandbox

__all__ = ["sandbox"]
PROGRAM = "log_fuzz.py"


@pytest.mark.django_db
def test_arbitrary_bytes_of_real_run_are_kept_and_escaped(
    sandbox: Sandbox, client: APIClient, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that separate writes become separate chunks.
    monkeypatch.setattr(log_stream, "CHUNK_BYTES", 1)
    created = runpy.run_path(str(PROGRAMS / PROGRAM))
    out, err = created["make_bytes"](1), created["make_bytes"](2)
    fence = run_on(make_worker(), make_execution(job=make_job(owner=owner)))
    log = LogStream(lambda chunks, progress: append_chunks(fence, chunks, progress))
    assert run_into(sandbox, PROGRAM, log, output=32 * MEBIBYTE).exit_code == 0
    address = f"{API}/executions/{fence.execution_id}/logs"

    assert client.get(f"{address}?stream=stdout").getvalue() == out + b"x" * created["LONG_LINE"]
    assert client.get(f"{address}?stream=stderr").getvalue() == err

    answer = client.get(f"{address}?stream=stderr&format=json")
    texts = "".join(chunk["text"] for chunk in json.loads(answer.content)["results"])
    assert texts == err.decode("utf-8", "replace"), "no character is cut at the end of a chunk"

    staff = Client()
    staff.force_login(make_user(is_staff=True, is_superuser=True))
    page = staff.get(f"/admin/jobs/execution/{fence.execution_id}/log/?stream=stderr").content.decode()
    assert not steering(page)
    assert "<script>alert" not in page
    cells = [unescape(text) for text in re.findall(r"<td>stderr</td><td>(.*?)</td>", page, re.DOTALL)]
    data = on_a_terminal(err)
    assert not steering(data)
    assert "\\x1b[2J" in data
    assert "".join("".join(cells).split()) == "".join(data.split()), "both show the same"


def steering(text: str) -> set[str]:
    hostile = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {c for c in text if unicodedata.category(c) in hostile and c not in "\n\t\u200c\u200d"}
