"""Profiles: a file that only its user reads, replaced whole or not at all, and which server is meant."""

from __future__ import annotations

import json
import os
import resource
import stat
from multiprocessing import get_context
from pathlib import Path

import pytest

from cli.config import Config, load_config
from cli.errors import NotConfiguredError, ProfilesNotKeptError, UsageMistakeError
from cli.profiles import Profile, Profiles, change_profiles, check_name, name_for, path_of, read_profiles
from tests.unit.forked import run_forked

WORK = Profile("https://work.example", "w")
HOME = Profile("http://[::1]:8000", "h")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_of({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.fixture
def environment(tmp_path: Path, path: Path) -> dict[str, str]:
    """Two profiles, one of them in use, and a local stack."""
    change_profiles(path, lambda profiles: profiles.having("home", HOME).having("work", WORK))
    stored = {"url": "http://127.0.0.1:8000", "api_token": "local"}
    (tmp_path / "credentials.json").write_text(json.dumps(stored))
    return {"XDG_CONFIG_HOME": str(tmp_path), "PUNCTUAL_VAR": str(tmp_path)}


def test_what_is_written_is_read_and_only_by_its_user(path: Path) -> None:
    odd = Profile('https://x/"\\\u00e9\U0001f600\x7f', "t")
    umask = os.umask(0)
    try:
        change_profiles(path, lambda profiles: profiles.having("a.b", WORK).having("odd", odd))
    finally:
        os.umask(umask)
    assert read_profiles(path) == Profiles({"a.b": WORK, "odd": odd}, "odd")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["config.toml"]


def test_a_file_that_others_can_read_is_told_of(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_profiles(path, lambda profiles: profiles.having("work", WORK))
    read_profiles(path)
    assert capsys.readouterr().err == ""
    path.chmod(0o640)
    assert read_profiles(path).known == {"work": WORK}
    assert "chmod 600" in capsys.readouterr().err


def fill_the_disk(path: Path) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY))
    try:
        change_profiles(path, lambda profiles: profiles.having("more", HOME))
    except ProfilesNotKeptError as error:
        return str(error)
    return "written"


def test_a_full_disk_leaves_the_old_file(path: Path) -> None:
    change_profiles(path, lambda profiles: profiles.having("work", WORK))
    with get_context("spawn").Pool(1) as pool:
        assert "it is as it was" in pool.apply(fill_the_disk, (path,))
    assert read_profiles(path) == Profiles({"work": WORK}, "work")
    assert os.listdir(path.parent) == ["config.toml"]


def test_two_at_once_take_turns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_profiles(path, lambda profiles: profiles.having("home", HOME))
    monkeypatch.setattr("cli.profiles.LOCK_SECONDS", 0.1)

    def log_in_meanwhile(profiles: Profiles) -> Profiles:
        with pytest.raises(ProfilesNotKeptError, match="Another punctual"):
            change_profiles(path, lambda others: others.having("work", WORK))
        return profiles.using("local")

    change_profiles(path, log_in_meanwhile)
    change_profiles(path, lambda profiles: profiles.having("work", WORK))
    assert read_profiles(path) == Profiles({"home": HOME, "work": WORK}, "work")


@pytest.mark.parametrize(
    "content", ["[", "\xff", "[profiles]\nx = 1", '[profiles.x]\nurl = "http://x"', '[profiles.x]\ntoken = 1\nurl = ""']
)
def test_a_broken_file_is_named_and_not_overwritten(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(NotConfiguredError, match=r"config\.toml"):
        change_profiles(path, lambda profiles: profiles.having("work", WORK))
    assert path.read_bytes() == content.encode("latin-1")


def test_where_the_file_is(tmp_path: Path) -> None:
    assert path_of({"HOME": "/home/ann"}) == Path("/home/ann/.config/punctual/config.toml")
    assert path_of({"HOME": "/home/ann", "XDG_CONFIG_HOME": "relative"}) == path_of({"HOME": "/home/ann"})
    assert path_of({"XDG_CONFIG_HOME": "/x"}) == Path("/x/punctual/config.toml")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ("https://work.example", "w")),
        ({"PUNCTUAL_PROFILE": "home"}, ("http://[::1]:8000", "h")),
        ({"PUNCTUAL_PROFILE": "local"}, ("http://127.0.0.1:8000", "local")),
        ({"PUNCTUAL_TOKEN": "t"}, ("http://127.0.0.1:8000", "t")),
        ({"PUNCTUAL_TOKEN": "t", "PUNCTUAL_PROFILE": "home"}, ("http://[::1]:8000", "h")),
        ({"PUNCTUAL_TOKEN": "t", "PUNCTUAL_PROFILE": "local"}, ("http://127.0.0.1:8000", "local")),
        ({"PUNCTUAL_URL": "http://x", "PUNCTUAL_TOKEN": "t", "PUNCTUAL_PROFILE": "home"}, ("http://x", "t")),
    ],
)
def test_explicit_comes_before_implicit_and_no_token_goes_astray(
    environment: dict[str, str], more: dict[str, str], expected: tuple[str, str]
) -> None:
    assert load_config(environment | more) == Config(*expected)


@pytest.mark.parametrize(
    ("words", "more", "used", "said"),
    [
        ([], {}, "work", ""),
        (["--profile", "home"], {"PUNCTUAL_PROFILE": "work", "PUNCTUAL_URL": "http://x"}, "home", ""),
        ([], {"PUNCTUAL_PROFILE": "home"}, "home", ""),
        ([], {"PUNCTUAL_PROFILE": "local"}, "local", ""),
        ([], {"PUNCTUAL_TOKEN": "t"}, "local", ""),
        ([], {"PUNCTUAL_URL": "http://x", "PUNCTUAL_TOKEN": "t"}, None, "comes before all of them: http://x is in use"),
        ([], {"PUNCTUAL_PROFILE": "gone"}, None, "There is no profile called 'gone'"),
    ],
)
def test_the_list_marks_the_server_that_a_command_would_use(
    environment: dict[str, str], words: list[str], more: dict[str, str], used: str | None, said: str
) -> None:
    listed = run_forked("cli", *words, "profiles", "-o", "json", environment=environment | more)
    profiles = json.loads(listed.stdout)
    assert [each["name"] for each in profiles] == ["home", "work", "local"]
    assert [each["name"] for each in profiles if each["current"]] == ([] if used is None else [used])
    assert said in listed.stderr
    assert bool(listed.stderr) is bool(said)


def test_the_local_stack_again(environment: dict[str, str], path: Path) -> None:
    change_profiles(path, lambda profiles: profiles.using("local"))
    assert load_config(environment).token == "local"
    change_profiles(path, lambda profiles: profiles.using("home").without("home"))
    assert load_config(environment).token == "local"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"PUNCTUAL_PROFILE": "gone"}, "no profile called 'gone'"),
        ({"PUNCTUAL_URL": "http://x"}, "PUNCTUAL_TOKEN is not"),
    ],
)
def test_nothing_else_is_taken_instead(environment: dict[str, str], more: dict[str, str], words: str) -> None:
    with pytest.raises(NotConfiguredError, match=words):
        load_config(environment | more)


@pytest.mark.parametrize("name", ["", "local", "a b", "-x", ".x", "a/b", "é", "x\n", "n" * 64])
def test_what_cannot_name_a_profile(name: str) -> None:
    with pytest.raises(UsageMistakeError):
        check_name(name)


@pytest.mark.parametrize(
    "url", ["https://x.example", "http://127.0.0.1:8000", "http://[::1]", "http://local", "http://é"]
)
def test_a_server_gives_its_profile_a_name(url: str) -> None:
    assert check_name(name_for(url))


def test_servers_of_one_host_have_profiles_of_their_own() -> None:
    paths = ("", "/a", "/b", "/a/b", "/a-b", "/a_b", "/é", "/ê", "/" + "n" * 70, "/" + "n" * 71)
    hosts = ("https://h", "https://h:81", f"https://{'h' * 50}:65535")
    assert len({check_name(name_for(f"{host}{path}")) for host in hosts for path in paths}) == 30
