"""Races of issuing tokens, logging in and registering workers with revocation, rehashing and limits."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from jobs.access import login
from jobs.access.password_marks import invalidate_tokens
from jobs.access.tokens import find_token, generate_secret, issue_token, store_token
from jobs.domain.errors import TokenRevoked, WorkerLimitReached
from jobs.domain.worker_protocol import WorkerOffer
from jobs.fleet.leases import register_worker
from jobs.models import ApiToken, TokenScope, Worker
from tests.support.barriers import at_once, beside
from tests.support.factories import make_user

pytestmark = pytest.mark.django_db(transaction=True)

OLD_HASHER, NEW_HASHER = (f"django.contrib.auth.hashers.{name}PasswordHasher" for name in ("MD5", "PBKDF2"))
ADMIN = TokenScope.ADMIN


def make_token(owner: User, maker: ApiToken | None = None) -> tuple[ApiToken, str]:
    return issue_token(owner=owner, name="t", scope=ADMIN, maker_scope=ADMIN, expires_at=None, maker=maker)


@pytest.mark.parametrize("with_token", [True, False], ids=["token", "browser"])
def test_request_concurrent_with_deactivation_leaves_no_token(with_token: bool) -> None:
    owner = make_user()
    maker = make_token(owner)[0] if with_token else None

    def deactivate() -> None:
        User.objects.filter(pk=owner.pk).update(is_active=False)
        invalidate_tokens(owner, because="account deactivated")

    def make() -> bool:
        try:
            make_token(owner, maker)
        except TokenRevoked:
            return False
        return True

    assert beside(deactivate, make) is False
    assert ApiToken.objects.filter(owner=owner).count() == int(with_token)


def test_concurrent_logins_that_rehash_invalidate_no_token(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = [OLD_HASHER, NEW_HASHER]
    owner = make_user(password="correct horse")
    _, secret = make_token(owner)
    settings.PASSWORD_HASHERS = [NEW_HASHER, OLD_HASHER]
    log_in = partial(login.log_in, username=owner.username, password="correct horse", address="192.0.2.1")
    beside(log_in, log_in)
    assert User.objects.get(pk=owner.pk).password.startswith("pbkdf2")
    assert find_token(secret).owner == owner
    at_once([log_in] * 3)
    assert find_token(secret).owner == owner


def test_concurrent_registrations_respect_max_workers() -> None:
    secret = generate_secret()
    token = store_token(owner=make_user(is_staff=True), name="w", secret=secret, scope=TokenScope.WORKER, max_workers=2)

    def register(name: str) -> bool:
        offer = WorkerOffer(name, uuid4(), "default", "elsewhere", 1, 1.0, 1024, 1024, ["bash"], {})
        try:
            register_worker(offer, token_id=token.id)
        except WorkerLimitReached:
            return False
        return True

    assert register("first")
    assert beside(partial(register, "second"), partial(register, "third")) is False
    assert sorted(Worker.objects.filter(token=token).values_list("name", flat=True)) == ["first", "second"]
