"""Fixtures for every kind of test; those that touch Django's database get the real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection, connections
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker, Settings

from jobs.notifications.webhooks.address_policy import AddressPolicy, parse_networks
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.emptying import empty
from tests.support.engines_plugin import TEMPLATE
from tests.support.webhook_receiver import Receiver


@pytest.fixture(scope="session")
def django_db_setup(engines: Engines, django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Create the test database, unless the engines began with one; it goes with them."""
    with django_db_blocker.unblock():
        if TEMPLATE:
            connection.close()
            connection.settings_dict["NAME"] = TEST_DATABASE_PREFIX + connection.settings_dict["NAME"]
        else:
            connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)


@pytest.fixture(autouse=True, scope="session")
def _empty_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty)
        yield


@pytest.fixture
def bucket(engines: Engines) -> None:
    from jobs.storage import s3

    s3.create_bucket()


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    """Of webhooks, to which these may be sent although it is on loopback."""
    settings.PUNCTUAL_WEBHOOK_REACH = AddressPolicy(parse_networks(["127.0.0.0/8"]), http=True)
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True, scope="session")
def _return_pooled_connections() -> Iterator[None]:
    yield
    for used in connections.all(initialized_only=True):
        used.close()
        if hasattr(used, "close_pool"):
            used.close_pool()


@pytest.fixture
def scheduled_executions_refused(db: None) -> Iterator[None]:
    """Firing fails in the database, as it would for a reason that nobody has thought of yet."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_execution ADD CONSTRAINT refused CHECK (trigger <> 'schedule') NOT VALID")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_execution DROP CONSTRAINT refused")
