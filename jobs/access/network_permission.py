"""The permission `jobs.use_network`: the job's owner needs it to give runs a network.

Checked when a job is saved and again before each placement, so revoking it affects everything that is not placed yet.
"""

from __future__ import annotations

from collections.abc import Collection

from django.contrib.auth.models import User

from jobs.domain.errors import NotPermitted
from jobs.domain.job_spec import JobSpec
from jobs.models import USE_NETWORK

PERMISSION = f"jobs.{USE_NETWORK}"

PERMISSION_WITHDRAWN = (
    "The job uses a network, and its owner may no longer use one: ask an administrator for the permission"
    f" {PERMISSION} again, cancel this execution, or edit the job to network: false, which cancels its executions that"
    " wait for a network."
)


def may_use_network(owner: User) -> bool:
    return owner.has_perm(PERMISSION)


def find_owners_with_network(owner_ids: Collection[int]) -> set[int]:
    """Return the owners who have the permission."""
    return set(User.objects.with_perm(PERMISSION).filter(id__in=owner_ids).values_list("id", flat=True))


def check_network_permission(owner: User, spec: JobSpec) -> None:
    if spec.network and not may_use_network(owner):
        raise NotPermitted(
            "network",
            f"The job's owner may not use a network; ask an administrator for the permission {PERMISSION}, or set"
            " network to false.",
        )
