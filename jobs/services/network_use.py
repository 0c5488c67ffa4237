"""Who may give the runs of their jobs a network: whoever has Django's permission `jobs.use_network`.

Asked when a job is saved and again before each placement (`ready_executions.sql` asks the same), so that a permission
that is taken away ends it for everything that is not placed yet.
"""

from __future__ import annotations

from django.contrib.auth.models import User

from jobs.errors import NotPermitted
from jobs.models import USE_NETWORK
from jobs.services.job_spec import JobSpec

PERMISSION = f"jobs.{USE_NETWORK}"
WHAT_TO_DO = f"an administrator has to give them the permission {PERMISSION}, or the job has to set network to false"

WITHDRAWN = (
    "It asks for a network, and its owner may not give it one any more: ask an administrator for the permission"
    f" {PERMISSION} again, or cancel this execution, or edit the job to network: false, which cancels all of it that"
    " waits for a network."
)


def may_use_network(owner: User) -> bool:
    return owner.has_perm(PERMISSION)


def check_network(owner: User, spec: JobSpec) -> None:
    if spec.network and not may_use_network(owner):
        raise NotPermitted("network", f"The owner of the job may not give its runs a network; {WHAT_TO_DO}.")
