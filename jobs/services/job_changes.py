"""What the audit tells of jobs: as what they were made, and what an edit made of them.

Values of variables and arguments stay out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from jobs.models import Artifact, Job
from jobs.services.audit_trail import Change
from jobs.services.audit_values import hidden
from jobs.services.job_spec import JobSpec

# Told by what they are: the bytes that run and are read.
_BYTES = {"script", "artifact", "stdin", "stdin_artifact", "inputs"}
_DEFAULTS = {
    each.name: each.default_factory() if each.default_factory is not MISSING else each.default
    for each in fields(JobSpec)
    if each.name not in _BYTES
}


def created(job: Job, spec: JobSpec, program: Artifact, inputs: Mapping[str | None, Artifact]) -> Change:
    """What was asked for; the rest is as it is by default."""
    asked = {name: value for name, value in described(spec, program, inputs).items() if value != _DEFAULTS.get(name)}
    if "env" in asked:
        _, asked["env"] = hidden({}, spec.env)
    if spec.args:
        _, asked["args"] = hidden({}, _args(asked))
    return Change("job.created", job.id, spec.name, job.owner_id, after=asked)


def edited(job: Job, before: Mapping[str, object], after: Mapping[str, object]) -> Change:
    env, env_after = hidden(_env(before), _env(after))
    args, args_after = hidden(_args(before), _args(after))
    return Change(
        "job.edited",
        job.id,
        job.name,
        job.owner_id,
        {**before, "env": env, "args": args},
        {**after, "env": env_after, "args": args_after},
    )


def described(spec: JobSpec, program: Artifact, inputs: Mapping[str | None, Artifact]) -> dict[str, object]:
    """For `edited`, too: with the values of variables, so that it is known whether they changed."""
    told = {name: getattr(spec, name) for name in _DEFAULTS} | {"program": program.sha256}
    if inputs:
        told["inputs"] = {path: file.sha256 for path, file in inputs.items() if path is not None}
        told["stdin"] = inputs[None].sha256 if None in inputs else None
    return told


def _env(told: Mapping[str, object]) -> Mapping[str, object]:
    env = told["env"]
    return env if isinstance(env, Mapping) else {}


def _args(told: Mapping[str, object]) -> Mapping[str, object]:
    """By their places, from 1 on: passwords are given as arguments, too."""
    args = told["args"]
    return {str(place): word for place, word in enumerate(args, 1)} if isinstance(args, list | tuple) else {}
