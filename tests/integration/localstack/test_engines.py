"""Real engines start, require credentials, and keep their data when they are killed."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import psutil
import psycopg
import pytest
import redis
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from redis.backoff import NoBackoff
from redis.retry import Retry

from scheduler_project.localstack.engines.postgres import Postgres
from scheduler_project.localstack.engines.seaweedfs import Seaweedfs
from scheduler_project.localstack.engines.standalone import Engines
from scheduler_project.localstack.errors import StackError
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Start engines for this module, which kills them, in a long path with special characters."""
    with Engines(tmp_path_factory.mktemp("engines") / ("deep" * 30) / "it's a %d [path] \\ ünï") as engines:
        yield engines


def s3(engines: Engines, config: Config | None = None) -> S3Client:
    environment = engines.environment()
    return boto3.client(
        "s3",
        endpoint_url=environment["S3_ENDPOINT_URL"],
        region_name=environment["S3_REGION"],
        aws_access_key_id=environment["S3_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["S3_SECRET_ACCESS_KEY"],
        config=config,
    )


def test_postgres_role_is_no_superuser(own: Engines) -> None:
    with psycopg.connect(own.environment()["DATABASE_URL"]) as connection:
        row = connection.execute(
            "SELECT rolsuper, rolcreatedb, current_database() FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")

    assert row == (False, True, "punctual")


def test_postgres_requires_the_password(own: Engines) -> None:
    url = urlsplit(own.environment()["DATABASE_URL"])

    for user in ("punctual", "postgres"):
        for password in ("", "wrong"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(host=url.hostname, port=url.port, user=user, password=password, dbname="punctual")


def test_valkey_requires_the_password(own: Engines) -> None:
    url = urlsplit(own.environment()["REDIS_URL"])

    with (
        redis.Redis(host=str(url.hostname), port=int(url.port or 0), retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    with redis.Redis.from_url(own.environment()["REDIS_URL"]) as client:
        assert client.ping()
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_store_requires_the_key(own: Engines) -> None:
    bucket = own.environment()["S3_BUCKET"]
    client = s3(own)
    client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key="private", Body=b"secret")
    stranger = s3(own, Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1}))

    for attempt in (
        lambda: stranger.get_object(Bucket=bucket, Key="private"),
        lambda: stranger.put_object(Bucket=bucket, Key="mine", Body=b""),
        stranger.list_buckets,
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            attempt()


def test_other_ports_of_the_store_serve_no_objects(own: Engines) -> None:
    bucket = own.environment()["S3_BUCKET"]
    s3(own).put_object(Bucket=bucket, Key="private", Body=b"secret")
    engine = own.seaweedfs.engine
    assert isinstance(engine, Seaweedfs)

    for port in set(engine.part_ports.http()) - {engine.part_ports.s3}:
        for method in ("GET", "PUT", "POST", "DELETE"):
            for path in (f"/buckets/{bucket}/private", "/dir/assign", "/1,01637037d6"):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request(method, path)
                status = connection.getresponse().status
                connection.close()
                assert 400 <= status < 500, (port, method, path)
                if port == engine.part_ports.volume and path.startswith("/1,"):
                    assert status == http.client.UNAUTHORIZED


def test_engines_listen_on_known_loopback_ports_only(own: Engines) -> None:
    for process in own.all:
        listening = [
            connection.laddr
            for connection in psutil.Process(process.pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert {address.ip for address in listening} == {"127.0.0.1"}
        assert {address.port for address in listening} <= set(process.engine.ports())


def _can_read(client: S3Client, key: str) -> bool:
    try:
        client.get_object(Bucket="kept", Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] != "InternalError":
            raise
        return False
    return True


def test_writes_survive_a_kill(own: Engines) -> None:
    environment = own.environment()
    client = s3(own)
    client.create_bucket(Bucket="kept")
    client.put_object(Bucket="kept", Key="small", Body=b"1")
    client.put_object(Bucket="kept", Key="large", Body=b"2" * 9_000_000)
    with redis.Redis.from_url(environment["REDIS_URL"]) as broker:
        broker.rpush("kept", "message")
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        connection.execute("CREATE TABLE kept (value text)")
        connection.execute("INSERT INTO kept VALUES ('row')")

    for process in own.all:
        process.kill()
        assert not process.is_running()
        assert not process.engine.answers()
    for process in own.all:
        process.start()

    assert own.environment() == environment
    assert eventually(lambda: _can_read(client, "small")), "its parts find each other a moment after it answers"
    assert client.get_object(Bucket="kept", Key="small")["Body"].read() == b"1"
    assert len(client.get_object(Bucket="kept", Key="large")["Body"].read()) == 9_000_000
    with redis.Redis.from_url(environment["REDIS_URL"]) as broker:
        assert broker.lpop("kept") == b"message"
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        assert connection.execute("SELECT value FROM kept").fetchall() == [("row",)]


def test_engines_stop_and_start_independently(own: Engines) -> None:
    own.valkey.stop()

    assert not own.valkey.is_running()
    assert own.postgres.engine.answers()
    assert own.seaweedfs.engine.answers()
    own.valkey.start()
    assert own.valkey.engine.answers()


def test_taken_port_fails_the_start_with_the_log(own: Engines, tmp_path: Path) -> None:
    second = Engines(tmp_path / "second")
    taken = own.postgres.engine
    assert isinstance(taken, Postgres)
    assert isinstance(second.postgres.engine, Postgres)
    second.postgres.engine = replace(second.postgres.engine, port=taken.port)

    with pytest.raises(StackError, match="postgres ended during its start") as caught:
        second.start()

    assert caught.value.log is not None
    assert "Address already in use" in caught.value.log.read_text()
    assert not any(process.is_running() for process in second.all)


def test_data_of_another_postgres_version_is_refused(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path, port=1, password="a", superuser_password="b", sync_to_disk=False)
    postgres.prepare()
    postgres.prepare()
    (postgres.data / "PG_VERSION").write_text("12\n")

    with pytest.raises(StackError, match=r"created by PostgreSQL 12, and this is PostgreSQL \d+"):
        postgres.prepare()
    (postgres.data / "PG_VERSION").unlink()
    with pytest.raises(StackError, match="is not a PostgreSQL data directory"):
        postgres.prepare()


def test_interrupted_initialisation_is_repeated(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path, port=1, password="a", superuser_password="b", sync_to_disk=False)
    (tmp_path / "unfinished" / "base").mkdir(parents=True)

    postgres.prepare()

    assert (postgres.data / "PG_VERSION").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
