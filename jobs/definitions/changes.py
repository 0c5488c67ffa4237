"""Audit entries about created and edited jobs, without the values of variables and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from jobs.audit.log import Change
from jobs.audit.snapshots import hide_values
from jobs.domain.job_spec import JobSpec
from jobs.models import Artifact, Job

# Shown as hashes instead.
_CONTENT_FIELDS = {"script", "artifact", "stdin", "stdin_artifact", "inputs"}
_DEFAULTS = {
    each.name: each.default_factory() if each.default_factory is not MISSING else each.default
    for each in fields(JobSpec)
    if each.name not in _CONTENT_FIELDS
}


def describe_creation(job: Job, spec: JobSpec, program: Artifact, inputs: Mapping[str | None, Artifact]) -> Change:
    """Describe a new job by the fields that differ from their defaults."""
    given = {name: value for name, value in snapshot_job(spec, program, inputs).items() if value != _DEFAULTS.get(name)}
    if "env" in given:
        _, given["env"] = hide_values({}, spec.env)
    if spec.args:
        _, given["args"] = hide_values({}, _args_by_position(given))
    return Change("job.created", job.id, spec.name, job.owner_id, after=given)


def describe_edit(job: Job, before: Mapping[str, object], after: Mapping[str, object]) -> Change:
    env, env_after = hide_values(_read_env(before), _read_env(after))
    args, args_after = hide_values(_args_by_position(before), _args_by_position(after))
    return Change(
        "job.edited",
        job.id,
        job.name,
        job.owner_id,
        {**before, "env": env, "args": args},
        {**after, "env": env_after, "args": args_after},
    )


def snapshot_job(spec: JobSpec, program: Artifact, inputs: Mapping[str | None, Artifact]) -> dict[str, object]:
    """Include the values of variables, so that `describe_edit` can see whether they changed."""
    snapshot = {name: getattr(spec, name) for name in _DEFAULTS} | {"program": program.sha256}
    if inputs:
        snapshot["inputs"] = {path: file.sha256 for path, file in inputs.items() if path is not None}
        snapshot["stdin"] = inputs[None].sha256 if None in inputs else None
    return snapshot


def _read_env(snapshot: Mapping[str, object]) -> Mapping[str, object]:
    env = snapshot["env"]
    return env if isinstance(env, Mapping) else {}


def _args_by_position(snapshot: Mapping[str, object]) -> Mapping[str, object]:
    args = snapshot["args"]
    return {str(position): arg for position, arg in enumerate(args, 1)} if isinstance(args, list | tuple) else {}
