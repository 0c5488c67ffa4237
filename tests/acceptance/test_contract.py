"""The API keeps to its schema: schemathesis sends what the schema allows and what it does not, to a running stack.

Nothing may fail on our side, and no answer may have a status, a type or a shape that the schema does not name. A token
of an ordinary owner asks for everything but what is a worker's, whose token asks for that.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.stack import ROOT, Stack

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "ignored_auth",
)
WORKERS = r"/workers/(terms|register)$|/(heartbeat|claim|leave|start|complete)$"
# The token would revoke itself, and all else would be refused: schemathesis takes ids from answers.
NOT_ASKED = ("tokens_revoke", "tokens_revoke_self", "tokens_revoke_all")
# For how long and how hard: of the suite, unless somebody looks for more.
EXAMPLES = os.environ.get("PUNCTUAL_FUZZ_EXAMPLES", "2")
SECONDS = int(os.environ.get("PUNCTUAL_FUZZ_SECONDS", "300"))
MAKE_OWNER = """
from django.contrib.auth.models import User
from jobs.models import TokenScope
from jobs.access.tokens import generate_secret, store_token
for scope, pool in ((TokenScope.ADMIN, ""), (TokenScope.WORKER, "fuzzing")):
    staff = scope is TokenScope.WORKER
    owner, _ = User.objects.get_or_create(username=f"fuzzing-{scope.value}", is_staff=staff)
    secret = generate_secret()
    store_token(owner=owner, name="fuzzing", secret=secret, scope=scope, pool=pool, max_workers=1000)
    print("token", scope.value, secret)
"""


@pytest.fixture(scope="module")
def tokens(stack: Stack) -> dict[str, str]:
    """Of an owner who has one of most things, so that there is something to answer with."""
    printed = stack.command("stack", "manage", "shell", "-c", MAKE_OWNER).stdout
    found: dict[str, str] = dict(re.findall(r"^token (\w+) (\S+)$", printed, re.MULTILINE))
    with httpx.Client(base_url=str(stack.api.base_url), headers={"Authorization": f"Bearer {found['admin']}"}) as api:
        for address, body in (
            ("/jobs", {"name": "ends", "runtime": "bash", "script": "echo hello"}),
            ("/jobs", {"name": "fails", "runtime": "bash", "script": "exit 3", "retry": {"max_attempts": 1}}),
            (
                "/jobs",
                {"name": "later", "runtime": "bash", "script": "echo", "schedules": [{"cron": "0 3 1 1 *"}]},
            ),
            ("/calendars", {"name": "holidays", "dates": ["2030-12-25"]}),
            ("/secrets", {"name": "key", "value": "hidden"}),
            ("/webhooks", {"name": "ends", "url": "https://hooks.invalid/ended"}),
        ):
            answer = api.post(address, json=body)
            assert answer.status_code == 201, answer.text
    return found


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize(
    ("scope", "chosen"),
    [
        (
            "admin",
            ("--exclude-path-regex", WORKERS, *(word for op in NOT_ASKED for word in ("--exclude-operation-id", op))),
        ),
        ("worker", ("--include-path-regex", WORKERS)),
    ],
)
def test_every_answer_is_one_that_the_schema_names(
    stack: Stack, tokens: dict[str, str], tmp_path: Path, scope: str, chosen: tuple[str, ...]
) -> None:
    ended = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "schemathesis"), "run", f"{stack.api.base_url}schema", *chosen),
            *("--header", f"Authorization: Bearer {tokens[scope]}", "--checks", ",".join(CHECKS)),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", "1", "--no-shrink"),
            *("--continue-on-failure", "--request-timeout", "30", "--warnings", "off", "--no-color"),
        ],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.acceptance.schemathesis_hooks", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-2_000:]
    assert int(re.findall(r"(\d+) generated", ended.stdout)[0]) > 100, ended.stdout[-2_000:]
