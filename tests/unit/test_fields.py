"""Input that is wrong a million times over is refused without saying so a million times."""

from __future__ import annotations

from jobs import conf
from jobs.api.artifacts import ArtifactInput
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


def test_what_is_refused_is_told_in_words_for_people() -> None:
    given = JobInput(
        data={"name": "x", "runtime": "cobol", "script": "", "requirements": "large", "retry": [], "env": 1}
    )
    assert not given.is_valid()
    assert given.errors["runtime"][0].startswith("This is none of bash, binary, ")
    assert given.errors["requirements"]["non_field_errors"] == ["Give an object here, with fields: not a text."]
    assert given.errors["retry"]["non_field_errors"] == ["Give an object here, with fields: not a list."]
    announced = ArtifactInput(data={"sha256": "AB", "size": 1})
    assert not announced.is_valid()
    assert "as sha256sum prints it" in announced.errors["sha256"][0]
