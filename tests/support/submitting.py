"""Submits one job and stores one script, as the API does with many."""

from __future__ import annotations

from django.contrib.auth.models import User

from jobs.definitions.submission import prepare_jobs, store_jobs
from jobs.domain.job_spec import JobSpec
from jobs.models import Artifact, Job
from jobs.storage.artifacts import store_scripts


def submit_job(*, owner: User, spec: JobSpec) -> Job:
    (stored,) = store_jobs(prepare_jobs(owner=owner, specs=[spec]))
    return stored.job


def store_script(*, owner: User, script: str) -> Artifact:
    return store_scripts(owner=owner, scripts=[script])[script]
