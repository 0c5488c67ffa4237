from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import CHECKOUT, Layout


def test_defaults_are_inside_the_checkout() -> None:
    layout = Layout.from_environment({})

    assert layout == Layout(var=CHECKOUT / "var", web_port=8000, flower_port=5555)
    assert (CHECKOUT / "pyproject.toml").is_file()


def test_variables_override_directory_and_ports(tmp_path: Path) -> None:
    layout = Layout.from_environment(
        {"PUNCTUAL_VAR": str(tmp_path), "PUNCTUAL_WEB_PORT": "9001", "PUNCTUAL_FLOWER_PORT": "9002"}
    )

    assert layout == Layout(var=tmp_path, web_port=9001, flower_port=9002)
    for path in (layout.config, layout.credentials, layout.run, layout.logs, layout.data("postgres")):
        assert path.is_relative_to(tmp_path)


def test_relative_directory_is_resolved_against_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert Layout.from_environment({"PUNCTUAL_VAR": "mine"}).var == tmp_path / "mine"


@pytest.mark.parametrize("text", ["0", "65536", "http", "-1", "8 000", "\uff18\uff10"])
def test_invalid_port_is_refused_with_its_variable(text: str) -> None:
    with pytest.raises(StackError, match=r"PUNCTUAL_WEB_PORT is .* not a port"):
        Layout.from_environment({"PUNCTUAL_WEB_PORT": text})
