"""Strict fields: bounded error reports and readable messages."""

from __future__ import annotations

from jobs.api.framework.fields import MAX_REPORTED_UNKNOWN_FIELDS
from jobs.api.resources.definitions.job_input import JobInput
from jobs.api.resources.executions.artifacts import ArtifactInput
from jobs.api.resources.tokens import LoginInput
from jobs.domain import limits


def test_number_of_reported_unknown_fields_is_bounded() -> None:
    serializer = LoginInput(data={f"field {number}": 0 for number in range(1000)})
    assert not serializer.is_valid()
    assert len(serializer.errors) == MAX_REPORTED_UNKNOWN_FIELDS


def test_object_size_is_checked_before_its_values() -> None:
    many = {f"n{number}": None for number in range(limits.MAX_ENV_VARIABLES + 1)}
    serializer = JobInput(
        data={"name": "x", "runtime": "bash", "script": "", "env": many, "requirements": {"resources": many}}
    )
    assert not serializer.is_valid()
    assert len(serializer.errors["env"]) == len(serializer.errors["requirements"]["resources"]) == 1


def test_error_messages_are_readable() -> None:
    serializer = JobInput(
        data={"name": "x", "runtime": "cobol", "script": "", "requirements": "large", "retry": [], "env": 1}
    )
    assert not serializer.is_valid()
    assert serializer.errors["runtime"][0].startswith("This is none of bash, binary, ")
    assert serializer.errors["requirements"]["non_field_errors"] == ["Give an object here, with fields: not a text."]
    assert serializer.errors["retry"]["non_field_errors"] == ["Give an object here, with fields: not a list."]
    announced = ArtifactInput(data={"sha256": "AB", "size": 1})
    assert not announced.is_valid()
    assert "as sha256sum prints it" in announced.errors["sha256"][0]
