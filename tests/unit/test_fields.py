"""Input that is wrong a million times over is refused without saying so a million times."""

from __future__ import annotations

from jobs import conf
from jobs.api.fields import MAX_UNKNOWN_TOLD
from jobs.api.job_input import JobInput
from jobs.api.tokens import LoginInput


def test_not_every_unknown_field_is_told() -> None:
    given = LoginInput(data={f"field {number}": 0 for number in range(1000)})
    assert not given.is_valid()
    assert len(given.errors) == MAX_UNKNOWN_TOLD


def test_what_is_named_is_counted_before_it_is_read() -> None:
    many = {f"n{number}": None for number in range(conf.MAX_ENV + 1)}
    given = JobInput(
        data={"name": "x", "runtime": "bash", "script": "", "env": many, "requirements": {"resources": many}}
    )
    assert not given.is_valid()
    assert len(given.errors["env"]) == len(given.errors["requirements"]["resources"]) == 1
