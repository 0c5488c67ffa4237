"""Submits one job, as the API does."""

from __future__ import annotations

from django.contrib.auth.models import User

from jobs.definitions.submission import prepare_jobs, store_jobs
from jobs.domain.job_spec import JobSpec
from jobs.models import Job


def submit_job(*, owner: User, spec: JobSpec) -> Job:
    (stored,) = store_jobs(prepare_jobs(owner=owner, specs=[spec]))
    return stored.job
