"""System tasks are listed in the admin, run by a worker, and keep their results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

import httpx

from tests.support.stack import Stack
from tests.support.waiting import wait_for

TASKS = ("jobs.create_partitions", "jobs.prune_history", "jobs.refill_due_window", "jobs.sweep_orphans")
PERIODIC, RESULTS = "/admin/django_celery_beat/periodictask/", "/admin/django_celery_results/taskresult/"


def test_housekeeping_is_run_from_the_admin_and_its_results_are_there(stack: Stack) -> None:
    with httpx.Client(base_url=stack.url, timeout=20, follow_redirects=True) as admin:
        credentials = {"username": stack.credentials["admin_user"], "password": stack.credentials["admin_password"]}
        submit(admin, "/admin/login/", credentials | {"next": PERIODIC})
        listed = admin.get(PERIODIC).text
        ids = re.findall(r'name="_selected_action" value="(\d+)"', listed)
        assert len(ids) >= len(TASKS)

        answer = submit(admin, PERIODIC, {"action": "run_tasks", "_selected_action": ids})

        assert "successfully run" in answer
        for task in TASKS:
            wait_for(partial(has_succeeded, admin, task), f"{task} has a result")


def submit(admin: httpx.Client, address: str, body: Mapping[str, str | list[str]]) -> str:
    admin.get(address)
    token = admin.cookies["csrftoken"]
    return admin.post(address, data={**body, "csrfmiddlewaretoken": token}).raise_for_status().text


def has_succeeded(admin: httpx.Client, task: str) -> bool:
    page = admin.get(RESULTS, params={"task_name__exact": task, "status__exact": "SUCCESS"}).raise_for_status().text
    return re.search(r"\b[1-9]\d* task results?\b", page) is not None
