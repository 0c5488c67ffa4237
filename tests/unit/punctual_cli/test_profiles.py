"""Profiles: a private file, replaced atomically, and the choice of the server."""

from __future__ import annotations

import json
import os
import resource
import stat
from multiprocessing import get_context
from pathlib import Path

import pytest

from punctual_client.config import Config, load_config
from punctual_client.errors import NotConfiguredError, ProfileWriteError, UsageError
from punctual_client.profiles import (
    Profile,
    Profiles,
    change_profiles,
    check_profile_name,
    default_profile_name,
    profiles_path,
    read_profiles,
)
from tests.support.forked import run_forked

WORK = Profile("https://work.example", "w")
HOME = Profile("http://[::1]:8000", "h")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return profiles_path({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.fixture
def environment(tmp_path: Path, path: Path) -> dict[str, str]:
    """Two profiles, one of them in use, and a local stack."""
    change_profiles(path, lambda profiles: profiles.with_profile("home", HOME).with_profile("work", WORK))
    stored = {"url": "http://127.0.0.1:8000", "api_token": "local"}
    (tmp_path / "credentials.json").write_text(json.dumps(stored))
    return {"XDG_CONFIG_HOME": str(tmp_path), "PUNCTUAL_VAR": str(tmp_path)}


def test_profiles_round_trip_in_a_private_file(path: Path) -> None:
    odd = Profile('https://x/"\\\u00e9\U0001f600\x7f', "t")
    umask = os.umask(0)
    try:
        change_profiles(path, lambda profiles: profiles.with_profile("a.b", WORK).with_profile("odd", odd))
    finally:
        os.umask(umask)
    assert read_profiles(path) == Profiles({"a.b": WORK, "odd": odd}, "odd")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["config.toml"]


def test_a_file_readable_by_others_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    change_profiles(path, lambda profiles: profiles.with_profile("work", WORK))
    read_profiles(path)
    assert caplog.text == ""
    path.chmod(0o640)
    assert read_profiles(path).known == {"work": WORK}
    assert "chmod 600" in caplog.text


def fill_the_disk(path: Path) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, resource.RLIM_INFINITY))
    try:
        change_profiles(path, lambda profiles: profiles.with_profile("more", HOME))
    except ProfileWriteError as error:
        return str(error)
    return "written"


def test_a_full_disk_leaves_the_old_file(path: Path) -> None:
    change_profiles(path, lambda profiles: profiles.with_profile("work", WORK))
    with get_context("spawn").Pool(1) as pool:
        assert "it is unchanged" in pool.apply(fill_the_disk, (path,))
    assert read_profiles(path) == Profiles({"work": WORK}, "work")
    assert os.listdir(path.parent) == ["config.toml"]


def test_two_at_once_take_turns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_profiles(path, lambda profiles: profiles.with_profile("home", HOME))
    monkeypatch.setattr("punctual_client.profiles.LOCK_SECONDS", 0.1)

    def log_in_meanwhile(profiles: Profiles) -> Profiles:
        with pytest.raises(ProfileWriteError, match="Another punctual"):
            change_profiles(path, lambda others: others.with_profile("work", WORK))
        return profiles.with_current("local")

    change_profiles(path, log_in_meanwhile)
    change_profiles(path, lambda profiles: profiles.with_profile("work", WORK))
    assert read_profiles(path) == Profiles({"home": HOME, "work": WORK}, "work")


@pytest.mark.parametrize(
    "content", ["[", "\xff", "[profiles]\nx = 1", '[profiles.x]\nurl = "http://x"', '[profiles.x]\ntoken = 1\nurl = ""']
)
def test_a_broken_file_is_named_and_not_overwritten(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(NotConfiguredError, match=r"config\.toml"):
        change_profiles(path, lambda profiles: profiles.with_profile("work", WORK))
    assert path.read_bytes() == content.encode("latin-1")


def test_where_the_file_is(tmp_path: Path) -> None:
    assert profiles_path({"HOME": "/home/ann"}) == Path("/home/ann/.config/punctual/config.toml")
    assert profiles_path({"HOME": "/home/ann", "XDG_CONFIG_HOME": "relative"}) == profiles_path({"HOME": "/home/ann"})
    assert profiles_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/punctual/config.toml")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ("https://work.example", "w")),
        ({"PUNCTUAL_PROFILE": "home"}, ("http://[::1]:8000", "h")),
        ({"PUNCTUAL_PROFILE": "local"}, ("http://127.0.0.1:8000", "local")),
        ({"PUNCTUAL_TOKEN": "t"}, ("http://127.0.0.1:8000", "t")),
        ({"PUNCTUAL_TOKEN": "t", "PUNCTUAL_PROFILE": "home"}, ("http://[::1]:8000", "h")),
        ({"PUNCTUAL_TOKEN": "t", "PUNCTUAL_PROFILE": "local"}, ("http://127.0.0.1:8000", "local")),
        ({"PUNCTUAL_URL": "https://x", "PUNCTUAL_TOKEN": "t", "PUNCTUAL_PROFILE": "home"}, ("https://x", "t")),
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
        (
            [],
            {"PUNCTUAL_URL": "http://x", "PUNCTUAL_TOKEN": "t"},
            None,
            "takes precedence over all of them: http://x is used",
        ),
        ([], {"PUNCTUAL_PROFILE": "gone"}, None, "The current profile 'gone' does not exist"),
    ],
)
def test_the_list_marks_the_server_that_a_command_would_use(
    environment: dict[str, str], words: list[str], more: dict[str, str], used: str | None, said: str
) -> None:
    listed = run_forked("punctual_cli", *words, "profiles", "-o", "json", environment=environment | more)
    profiles = json.loads(listed.stdout)
    assert [each["name"] for each in profiles] == ["home", "work", "local"]
    assert [each["name"] for each in profiles if each["current"]] == ([] if used is None else [used])
    assert said in listed.stderr
    assert bool(listed.stderr) is bool(said)


def test_the_local_stack_again(environment: dict[str, str], path: Path) -> None:
    change_profiles(path, lambda profiles: profiles.with_current("local"))
    assert load_config(environment).token == "local"
    change_profiles(path, lambda profiles: profiles.with_current("home").without_profile("home"))
    assert load_config(environment).token == "local"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"PUNCTUAL_PROFILE": "gone"}, "no profile called 'gone'"),
        ({"PUNCTUAL_URL": "http://x"}, "PUNCTUAL_TOKEN is not"),
    ],
)
def test_an_invalid_file_does_not_fall_back_to_another_server(
    environment: dict[str, str], more: dict[str, str], words: str
) -> None:
    with pytest.raises(NotConfiguredError, match=words):
        load_config(environment | more)


@pytest.mark.parametrize("name", ["", "local", "a b", "-x", ".x", "a/b", "é", "x\n", "n" * 64])
def test_invalid_profile_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_profile_name(name)


@pytest.mark.parametrize(
    "url", ["https://x.example", "http://127.0.0.1:8000", "http://[::1]", "http://local", "http://é"]
)
def test_a_server_gives_its_profile_a_name(url: str) -> None:
    assert check_profile_name(default_profile_name(url))


def test_servers_of_one_host_have_profiles_of_their_own() -> None:
    paths = ("", "/a", "/b", "/a/b", "/a-b", "/a_b", "/é", "/ê", "/" + "n" * 70, "/" + "n" * 71)
    hosts = ("https://h", "https://h:81", f"https://{'h' * 50}:65535")
    assert len({check_profile_name(default_profile_name(f"{host}{path}")) for host in hosts for path in paths}) == 30
